"""The devices and batches of a ROLL config, compared with the pods.

The rules are those that ROLL 0.3.0 asserts, or that its batches need: roll/configs/base_config.py,
roll/configs/worker_config.py, roll/utils/config_utils.py, roll/distributed/scheduler/resource_manager.py.

The pods mount the module, so that it has no imports outside of the standard library.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    Config = Mapping[str, Any]

ROLES = ("actor_train", "actor_infer", "reference", "critic")
TRAINED = ("actor_train", "critic")
MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
ENGINES = ("vllm", "sglang")
DEFAULTS: Mapping[str, int] = {
    "rollout_batch_size": 128,
    "num_return_sequences_in_group": 1,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}
"""roll/configs/base_config.py, rlvr_config.py and training_args.py."""
MAX_DEVICES = 2**20


@dataclass(frozen=True)
class Contradiction:
    """A setting that does not fit the pods or the others."""

    key: str
    value: str
    message: str
    fix: str
    ends: bool = False
    """Whether ROLL ends with an error before the first step."""


def list_contradictions(config: Config, total: int) -> Iterator[Contradiction]:
    """List the contradictions of a config on `total` devices. Roles with interpolations (${…}) are not compared."""
    yield from list_device_contradictions(config, total)
    for name, role in list_roles(config).items():
        devices = parse_devices(role.get("device_mapping"))
        if devices and name in (*TRAINED, "reference"):
            yield from _check_batches(config, name, role, len(devices))
    yield from _check_lengths(config)


def list_device_contradictions(config: Config, total: int) -> Iterator[Contradiction]:
    """List the contradictions of the devices alone, which all pipelines have."""
    roles = {name: role for name, role in list_roles(config).items() if "device_mapping" in role}
    placed = {name: parse_devices(role["device_mapping"]) for name, role in roles.items()}
    for name, devices in placed.items():
        yield from _check_devices(name, roles[name], devices, total)
    yield from _check_overlap({name: devices for name, devices in placed.items() if devices})


def list_roles(config: Config) -> dict[str, Config]:
    """Find the roles: the policy's, and each of rewards."""
    rewards = config.get("rewards")
    roles = {name: config.get(name) for name in (*ROLES, "reward_model")}
    roles.update({f"rewards.{name}": each for name, each in rewards.items()} if isinstance(rewards, dict) else {})
    return {name: role for name, role in roles.items() if isinstance(role, dict)}


def parse_devices(mapping: object) -> list[int] | None:
    """Parse a device_mapping, which ROLL evaluates as Python: lists, ranges and their sums. None for other texts."""
    if mapping is None:
        return []
    try:
        return _evaluate(ast.parse(str(mapping).strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def count_shares(role: Config, devices: int) -> int | None:
    """Count the data-parallel shares of a role: Megatron devices / (TP x PP x CP), DeepSpeed and FSDP2 devices /
    ulysses_size. Megatron's expert_model_parallel_size does not count. None if the sizes do not divide the devices."""
    size = math.prod(read_parallel_sizes(role).values())
    return devices // size if size and devices % size == 0 and devices >= size else None


def read_parallel_sizes(role: Config) -> dict[str, int]:
    """Read the sizes that divide the devices of a role: key below the role -> size."""
    strategy, options = read_strategy(role)
    if strategy.startswith("megatron"):
        return {f"strategy_args.strategy_config.{key}": _read(options, key, 1) for key in MEGATRON}
    if strategy == "vllm":
        keys = ("tensor_parallel_size", "pipeline_parallel_size")
        return {f"strategy_args.strategy_config.{key}": _read(options, key, 1) for key in keys}
    if strategy == "sglang":
        return {"num_gpus_per_worker": _read(role, "num_gpus_per_worker", 1)}
    model = role.get("model_args")
    return {"model_args.ulysses_size": _read(model if isinstance(model, dict) else {}, "ulysses_size", 1)}


def read_strategy(role: Config) -> tuple[str, Config]:
    """Read the name of the strategy, by default ROLL's, and its options."""
    arguments = role.get("strategy_args")
    arguments = arguments if isinstance(arguments, dict) else {}
    options = arguments.get("strategy_config")
    return str(arguments.get("strategy_name") or "fsdp2_train"), options if isinstance(options, dict) else {}


def shares_devices_asynchronously(config: Config) -> bool:
    """Whether asynchronous generation shares devices with the training, which ROLL does not recommend."""
    ratio = config.get("async_generation_ratio", 0)
    roles = list_roles(config)
    generating = set(parse_devices(roles.get("actor_infer", {}).get("device_mapping")) or [])
    others = [parse_devices(roles.get(name, {}).get("device_mapping")) or [] for name in (*TRAINED, "reference")]
    return isinstance(ratio, int | float) and ratio > 0 and any(generating & set(each) for each in others)


def _evaluate(node: ast.expr) -> list[int]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_evaluate_integer(each) for each in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _evaluate(node.left) + _evaluate(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _evaluate(node.args[0])
        if node.func.id == "range" and 1 <= len(node.args) <= 3:
            numbers = range(*map(_evaluate_integer, node.args))
            if len(numbers) <= MAX_DEVICES:
                return list(numbers)
    raise ValueError("not a list of devices")


def _evaluate_integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError("not an integer")


def _read(options: Config, key: str, default: int) -> int:
    value = options.get(key, default)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def _check_devices(name: str, role: Config, devices: list[int] | None, total: int) -> Iterator[Contradiction]:
    key = f"{name}.device_mapping"
    text = str(role["device_mapping"])
    if devices is None:
        if "${" not in text:
            fix = "write a list of Python, such as list(range(0,8))"
            yield Contradiction(key, text, "is not a list of devices", fix, ends=True)
        return
    if devices and (max(devices) >= total or min(devices) < 0):
        message = f"names device {max(devices)}, and the job has {total} (0 to {total - 1}): ROLL ends with an error"
        yield Contradiction(key, text, message, f"use list(range(0,{total})), or more replicas", ends=True)
    elif len(set(devices)) < len(devices):
        yield Contradiction(key, text, "names a device twice", "name each device once")
    sizes = {part: size for part, size in read_parallel_sizes(role).items() if size > 1}
    product = math.prod(sizes.values())
    if devices and len(devices) % product:
        listed = " x ".join(f"{part.rpartition('.')[2]} {size}" for part, size in sizes.items())
        message = f"does not divide the {len(devices)} devices of {name}" + (f" ({listed})" if len(sizes) > 1 else "")
        below = max(size for size in range(1, product) if len(devices) % size == 0)
        part, size = next(iter(sizes.items()))
        yield Contradiction(f"{name}.{part}", str(size), message, f"use a product of {below}, or other devices")
    strategy, options = read_strategy(role)
    shard = options.get("fsdp_size")
    if strategy.startswith("fsdp2") and isinstance(shard, int) and 0 < shard < len(devices) and len(devices) % shard:
        message = f"does not divide the {len(devices)} devices of {name}"
        fix = f"use {max(size for size in range(1, shard) if len(devices) % size == 0)}"
        yield Contradiction(f"{name}.strategy_args.strategy_config.fsdp_size", str(shard), message, fix)


def _check_overlap(placed: Mapping[str, list[int]]) -> Iterator[Contradiction]:
    """A judge's engine keeps its memory while the policy's engines generate."""
    generating = set(placed.get("actor_infer", ()))
    for name, devices in placed.items():
        if name.startswith("reward") and generating & set(devices):
            message = (
                f"shares device {min(generating & set(devices))} with actor_infer, which generates at the same time"
            )
            fix = "give it its own devices, and actor_infer the others"
            yield Contradiction(f"{name}.device_mapping", str(sorted(devices)), message, fix)


def _check_batches(config: Config, name: str, role: Config, devices: int) -> Iterator[Contradiction]:
    prompts, group = (
        _read(config, key, DEFAULTS[key]) for key in ("rollout_batch_size", "num_return_sequences_in_group")
    )
    shares = count_shares(role, devices)
    samples = prompts * group
    if shares is None:
        return
    strategy = read_strategy(role)[0]
    if name == "actor_train" and strategy.startswith("megatron") and prompts % shares:
        message = f"is not divisible by the {shares} data-parallel shares of actor_train (devices / TP / PP / CP)"
        yield Contradiction("rollout_batch_size", str(prompts), message, _suggest_multiples(prompts, shares))
    elif samples % shares:
        message = (
            f"gives {samples} responses (with num_return_sequences_in_group {group}), which is not divisible by the "
            f"{shares} data-parallel shares of {name}"
        )
        yield Contradiction("rollout_batch_size", str(prompts), message, _suggest_multiples(prompts, shares))
    elif name in TRAINED:
        given = role.get("training_args")
        arguments = given if isinstance(given, dict) else {}
        micro, steps = (
            _read(arguments, key, DEFAULTS[key])
            for key in ("per_device_train_batch_size", "gradient_accumulation_steps")
        )
        share = samples // shares
        key = f"{name}.training_args.gradient_accumulation_steps"
        if share % (micro * steps):
            message = (
                f"x per_device_train_batch_size {micro} = {micro * steps} does not divide the {share} responses of a "
                f"share ({prompts} x {group} / {shares})"
            )
            fitting = [size for size in range(1, share + 1) if share % (size * micro) == 0]
            fix = f"use {fitting[-1]}" if fitting else f"use a per_device_train_batch_size that divides {share}"
            yield Contradiction(key, str(steps), message, fix)


def _suggest_multiples(value: int, size: int) -> str:
    below = value - value % size
    above = value + (-value) % size
    return f"use {below} or {above}" if below else f"use {above}"


def _check_lengths(config: Config) -> Iterator[Contradiction]:
    """The engine rejects prompts that leave no room for a response."""
    prompt = config.get("prompt_length")
    response = config.get("response_length")
    sequence = config.get("sequence_length")
    engine = config.get("actor_infer")
    limit = read_strategy(engine)[1].get("max_model_len") if isinstance(engine, dict) else None
    if sequence is None and isinstance(prompt, int) and isinstance(response, int):
        sequence = prompt + response
    if isinstance(sequence, int) and isinstance(limit, int) and limit < sequence:
        message = f"is less than a prompt with its response, {sequence} tokens"
        yield Contradiction(
            "actor_infer.strategy_args.strategy_config.max_model_len", str(limit), message, f"use {sequence}"
        )
