"""Nodes and devices of a program, by the options and formulas of each framework."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlt_api.frameworks.arguments import Program, parse_value
from rlt_api.frameworks.known_program import Demand as Found
from rlt_api.frameworks.known_programs import get_record

ROLES = ("actor", "ref", "critic", "reward")
VERL_DEVICES = 8
"""verl's default of trainer.n_gpus_per_node."""
LAUNCHER = re.compile(r"(.*/)?(torchrun|accelerate|deepspeed|trl|swift|xtuner|llamafactory-cli|axolotl)")
NEMO = re.compile(r"(.*/)?run_(grpo|dpo|ppo|sft|rm|distillation|vlm|mopd|audio|async|sliding)\w*\.py")
OWN_MACHINE = (
    "it starts its processes on the machine where it runs, and a command job runs it once, on the head, which has no "
    "accelerator: use a program that runs on Ray, or --to builtin"
)


@dataclass(frozen=True)
class Demand:
    """What a program needs."""

    nodes: int | None = None
    devices: int | None = None
    """Devices of each node."""
    what: str = ""
    """Roles and their devices, if they are together on the nodes."""
    resource: str | None = None
    """The resource of the devices, if the program names it."""


def find_demand(words: Sequence[str], program: Program | None, size: int | None, given: int | None) -> Demand:
    """The demand of a program. `size`: devices of a node, as far as the script shows them. `given`: the nodes that
    the script asks for."""
    if program is not None and program.name == "verl":
        return _count_verl(program, size, given is not None)
    if program is not None and program.name == "openrlhf":
        return _count_openrlhf(program, size, given)
    flags = read_flags(words)
    overrides = read_overrides(words)
    if any(NEMO.fullmatch(word) for word in words[:4]) or "cluster.num_nodes" in overrides:
        return Demand(_integer(overrides, "cluster.num_nodes"), _integer(overrides, "cluster.gpus_per_node"))
    if program is not None and (found := get_record(program).count_devices(program)):
        return _divide(found, size)
    if "trainer.n_gpus_per_node" in overrides or "trainer.nnodes" in overrides:
        return _count_hydra(overrides, size)
    if "placement.num_gpus_per_node" in overrides:
        return Demand(_integer(overrides, "placement.num_nodes", 1), _integer(overrides, "placement.num_gpus_per_node"))
    return _count_launcher(words, flags)


def read_flags(words: Sequence[str]) -> dict[str, str]:
    """Options as --name value or --name=value, with dashes for underscores. Without a value: true."""
    found = {}
    for index, word in enumerate(words):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            following = words[index + 1] if index + 1 < len(words) else "--"
            found[name.replace("_", "-")] = value if equals else "true" if following.startswith("--") else following
    return found


def read_overrides(words: Sequence[str]) -> dict[str, str]:
    """Hydra's overrides key=value."""
    pairs = (word.lstrip("+").partition("=") for word in words if re.match(r"\+{0,2}[A-Za-z_][\w.]*=", word))
    return {key: value for key, _, value in pairs}


def split_total(total: int, size: int | None, per_node: int | None) -> tuple[int, int]:
    """Pods and devices of each for a number of devices."""
    if size is None:
        size = 8
        if total > 8 and per_node and total % per_node == 0 and (total % 8 or per_node > 8):
            size = per_node
    if total <= size:
        return 1, total
    return -(-total // size), size


def _integer(values: Mapping[str, str], key: str, default: int | None = None) -> int | None:
    text = values.get(key)
    if text is None:
        return default
    return int(text) if text.isdigit() else None


def _count_verl(program: Program, size: int | None, given: int | None) -> Demand:
    values = program.values
    texts = {key: str(value) for key, value in values.items()}
    device = str(values.get("trainer.device", "cuda"))
    nodes = _integer(texts, "trainer.nnodes") or (None if given or "trainer.nnodes" in program.given else 1)
    devices = _integer(texts, "trainer.n_gpus_per_node")
    if devices is None and size is None and device == "cuda" and "trainer.n_gpus_per_node" not in program.given:
        devices = VERL_DEVICES
    resource = "huawei.com/Ascend910" if device == "npu" else None
    pools = [("trainer", nodes, devices)]
    if program.separate and "rollout.n_gpus_per_node" in texts:
        pools.append(("rollout", _integer(texts, "rollout.nnodes", 1), _integer(texts, "rollout.n_gpus_per_node")))
    if (
        str(values.get("reward_model.enable_resource_pool")) == "True"
        or texts.get("reward.reward_model.enable_resource_pool") == "True"
    ):
        prefix = "reward_model" if "reward_model.n_gpus_per_node" in texts else "reward.reward_model"
        pools.append((prefix, _integer(texts, f"{prefix}.nnodes", 1), _integer(texts, f"{prefix}.n_gpus_per_node")))
    return _join_pools(pools, size, resource)


def _join_pools(pools: Sequence[tuple[str, int | None, int | None]], size: int | None, resource: str | None) -> Demand:
    """Pools of nodes together: on the same nodes if their devices fit, otherwise side by side."""
    known = [(name, nodes, devices) for name, nodes, devices in pools if nodes and devices]
    if len(pools) == 1 or len(known) < len(pools):
        return Demand(pools[0][1], pools[0][2] if len(pools) == 1 else None, resource=resource)
    what = ", ".join(f"{name} {nodes} x {devices}" for name, nodes, devices in known)
    together = sum(devices for _, _, devices in known)
    if len({nodes for _, nodes, _ in known}) == 1 and together <= (size or 8):
        return Demand(known[0][1], together, what, resource)
    largest = max(devices for _, _, devices in known)
    if size is None or size <= largest:
        return Demand(sum(nodes for _, nodes, _ in known), largest, what, resource)
    total = sum(nodes * devices for _, nodes, devices in known)
    pods, count = split_total(total, size, largest)
    return Demand(pods, count, what, resource)


def _count_openrlhf(program: Program, size: int | None, given: int | None) -> Demand:
    """OpenRLHF's roles share devices with --colocate_all_models, in 0.11 --train.colocate_all, else they add up.

    The options are from openrlhf/cli/train_ppo_ray.py.
    """
    values = {key: value for key, value in program.values.items() if isinstance(value, int) and value > 0}
    options = program.given.keys()
    shared = bool(options & {"colocate_all_models", "train_colocate_all"})
    per_node = values.get("actor_num_gpus_per_node")
    counts = {role: values.get(f"{role}_num_nodes", 1) * values.get(f"{role}_num_gpus_per_node", 0) for role in ROLES}
    if not shared and options & {"colocate_actor_ref", "train_colocate_actor_ref"}:
        counts["ref"] = 0
    if not shared and options & {"colocate_critic_reward", "train_colocate_critic_reward"}:
        counts["reward"] = 0
    total = max(counts.values()) if shared else sum(counts.values())
    engines = values.get("vllm_num_engines", 0) * values.get("vllm_tensor_parallel_size", 1)
    total = max(total, engines) if shared else total + engines
    if not total or not per_node:
        return Demand()
    if size is None and given and total % given == 0:
        size = total // given
    pods, count = split_total(total, size, per_node)
    return Demand(pods, count, f"together {total}")


def _divide(found: Found, size: int | None) -> Demand:
    """The pods for the accelerators that the record of a program counts."""
    if found.per_pod and found.total == found.training and (size is None or size >= found.per_pod):
        return Demand(found.training // found.per_pod, found.per_pod)
    pods, devices = split_total(found.total, size, found.per_pod)
    return Demand(pods, devices, f"training {found.training}, engines {found.engines}")


def _count_hydra(overrides: Mapping[str, str], size: int | None) -> Demand:
    """A program with verl's arguments, such as a recipe."""
    nodes = _integer(overrides, "trainer.nnodes")
    devices = _integer(overrides, "trainer.n_gpus_per_node")
    if "rollout.n_gpus_per_node" not in overrides:
        return Demand(nodes, devices)
    rollout = (_integer(overrides, "rollout.nnodes", 1), _integer(overrides, "rollout.n_gpus_per_node"))
    return _join_pools([("trainer", nodes or 1, devices), ("rollout", *rollout)], size, None)


def _count_launcher(words: Sequence[str], flags: Mapping[str, str]) -> Demand:
    """torchrun, accelerate and deepspeed: processes, one for each device."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "torchrun" or "torch.distributed" in " ".join(words[1:3]):
        nodes = _integer({"nnodes": flags.get("nnodes", "1").split(":")[-1]}, "nnodes")
        return Demand(nodes, _integer(flags, "nproc-per-node"))
    if name == "accelerate" or name == "trl":
        machines = _integer(flags, "num-machines", 1)
        processes = _integer(flags, "num-processes")
        return Demand(machines, processes // machines if processes and machines else None)
    if name == "deepspeed":
        return Demand(_integer(flags, "num-nodes", 1), _integer(flags, "num-gpus"))
    return Demand()


def starts_own_processes(words: Sequence[str]) -> bool:
    """Whether a program starts its processes itself, without Ray."""
    if not words:
        return False
    if LAUNCHER.fullmatch(words[0]):
        return not any("main_ppo" in word or "train_ppo_ray" in word for word in words)
    return any(word in ("torch.distributed.run", "torch.distributed.launch") for word in words[1:3])


def count_visible(value: str) -> int | None:
    """Devices of CUDA_VISIBLE_DEVICES."""
    return len(value.split(",")) if re.fullmatch(r"\d+(,\d+)*", value) else None


def find_started(words: Sequence[str]) -> int | None:
    """Devices of `ray start --num-gpus`."""
    if len(words) > 1 and words[0].rpartition("/")[2] == "ray" and words[1] == "start":
        count = parse_value(read_flags(words).get("num-gpus", ""))
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
    return None
