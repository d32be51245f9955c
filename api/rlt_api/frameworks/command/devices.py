"""The devices that a known program requests, compared with the worker groups. Ray waits forever for missing devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.finding import Finding, printable, use
from rlt_api.frameworks.arguments import Argument, Program, build_option_key
from rlt_api.frameworks.mapping import load_mapping
from rlt_api.frameworks.openrlhf.options import read_integer
from rlt_api.spec.job_spec import RLTrainingJobSpec

COMMAND = "spec.framework.command"
RULE = "command-devices"
NODES = "trainer.nnodes"
DEVICES = "trainer.n_gpus_per_node"
TENSOR_PARALLEL = "actor_rollout_ref.rollout.tensor_model_parallel_size"
ACTOR = ("actor.num_nodes", "actor.num_gpus_per_node")
"""OpenRLHF's options with the devices of the actor."""


def read_verl_number(program: Program, key: str) -> int | None:
    """Return the value of a key, or verl's default. None if it is unknown or not an integer."""
    value = None
    if key in program.given:
        value = program.values.get(key)
    elif not program.own_config:
        value = next(setting for setting in load_mapping().verl if setting.key == key).default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_devices(groups: Sequence[WorkerGroup]) -> int:
    """Count the accelerators of all pods."""
    return sum(group.replicas * group.accelerator.count for group in groups if group.accelerator)


def describe_groups(groups: Sequence[WorkerGroup]) -> str:
    """Return the pods with their accelerators, for messages: "2 pods with 8 nvidia.com/gpu"."""
    parts = []
    for group in groups:
        accelerator = group.accelerator
        devices = f"{accelerator.count} {accelerator.resource_name}" if accelerator else "no accelerator"
        parts.append(f"{group.replicas} pod{'s' * (group.replicas > 1)} with {devices}")
    return " and ".join(parts)


def build_argument_finding(
    argument: Argument, message: str, fix: str, *, rule: str, involved: tuple[str, ...], value: str | None = None
) -> Finding:
    """Build the finding of an argument; `value` is the one that resolves it."""
    field = f"{COMMAND}[{argument.index}]"
    given = printable(f"{argument.key}={argument.value}")
    edits = use(field, f"{argument.prefix}{argument.key}={value}") if value is not None else ()
    return Finding(field, given, message, fix, rule=rule, involved=involved, edits=edits)


def validate_verl_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The devices that verl's arguments request must exist: trainer.nnodes times trainer.n_gpus_per_node."""
    groups = spec.cluster.workers
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    if program.values.get("trainer.device", "cuda") != "cuda" or not nodes or not devices:
        return
    maximum = max(group.accelerator.count if group.accelerator else 0 for group in groups)
    given = describe_groups(groups)
    if maximum and devices > maximum:
        message = f"is more than the accelerators of a pod ({given}): verl waits for them"
        yield _replace_key(program, groups, DEVICES, message, maximum)
        return
    slots = sum(group.replicas * (group.accelerator.count // devices) for group in groups if group.accelerator)
    slots = slots or sum(group.replicas for group in groups)
    if NODES in program.given and nodes > slots:
        message = f"is more than the {slots} that the job has ({given}): verl waits for the others"
        yield _replace_key(program, groups, NODES, message, slots, f", or {nodes} replicas")
        return
    size = read_verl_number(program, TENSOR_PARALLEL)
    total = nodes * devices
    if maximum and TENSOR_PARALLEL in program.given and not program.separate and size and total % size:
        message = f"does not divide the {total} accelerators of the training ({NODES} x {DEVICES})"
        divisor = max(number for number in range(1, size) if total % number == 0)
        yield _replace_key(program, groups, TENSOR_PARALLEL, message, divisor)


def validate_openrlhf_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The devices that OpenRLHF's arguments request must exist: the actor's nodes, and the engines if they have
    separate devices."""
    groups = spec.cluster.workers
    total = count_devices(groups)
    maximum = max((group.accelerator.count for group in groups if group.accelerator), default=0)
    nodes, per_node = (read_integer(program, name) for name in ACTOR)
    if not (maximum and per_node and nodes):
        return
    given = describe_groups(groups)
    if per_node > maximum:
        message = f"is more than the accelerators of a pod ({given}): Ray waits for them"
        yield _build_option_finding(program, groups, ACTOR[1], per_node, message, f"use {maximum}")
        return
    separate = count_openrlhf_engines(program)
    actor = nodes * per_node
    if actor + separate > total:
        needed = f"{actor} + {separate} of the vLLM engines" if separate else f"{actor}"
        message = f"needs {needed} accelerators, and the job has {total} ({given}): Ray waits for them"
        fix = "use fewer, or more replicas" + (", or --train.colocate_all" if separate else "")
        yield _build_option_finding(program, groups, ACTOR[0], nodes, message, fix)


def count_openrlhf_engines(program: Program) -> int:
    """Count the accelerators of OpenRLHF's engines. 0 if they share the actor's."""
    values = program.values
    engines = values.get("vllm_num_engines", 0)
    size = values.get("vllm_tensor_parallel_size", 1)
    colocated = values.get("colocate_all_models") or values.get("train_colocate_all")
    asynchronous = values.get("async_train") or values.get("train_async_enable")
    if colocated and not asynchronous:
        return 0
    return engines * size if isinstance(engines, int) and isinstance(size, int) else 0


def _replace_key(
    program: Program, groups: Sequence[WorkerGroup], key: str, message: str, value: int, instead: str = ""
) -> Finding:
    """Build the finding for a key of verl that must have another value, or for its default."""
    involved = list_involved(groups)
    if argument := program.given.get(key):
        wanted = None if program.in_script else str(value)
        fix = f"use {key}={value}{instead}"
        return build_argument_finding(argument, message, fix, rule=RULE, involved=involved, value=wanted)
    default = f"{key}={read_verl_number(program, key)}, verl's default"
    return Finding(COMMAND, default, message, f"add {key}={value}", rule=RULE, involved=involved)


def _build_option_finding(
    program: Program, groups: Sequence[WorkerGroup], name: str, value: int, message: str, fix: str
) -> Finding:
    """Build the finding of an OpenRLHF option, or of its default."""
    involved = list_involved(groups)
    if argument := program.given.get(build_option_key(name)):
        return build_argument_finding(argument, message, fix, rule=RULE, involved=involved)
    return Finding(COMMAND, f"--{name}={value}, OpenRLHF's default", message, fix, rule=RULE, involved=involved)


def list_involved(groups: Sequence[WorkerGroup]) -> tuple[str, ...]:
    """Return the fields with the number of accelerators."""
    return tuple(
        f"spec.cluster.workers[{index}].{name}"
        for index, group in enumerate(groups)
        for name in ("replicas", *(["accelerator.count"] if group.accelerator else []))
    )
