"""The accelerators and CPUs that verl asks Ray for, compared with the pods. Ray waits for what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import (
    DEVICES,
    NODES,
    count_devices,
    describe_groups,
    read_verl_number,
)
from rlt_api.frameworks.command.problem import ALL, Problem
from rlt_api.frameworks.verl.version import find_version
from rlt_api.model import quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec

ROLLOUT_NODES = "rollout.nnodes"
ROLLOUT_DEVICES = "rollout.n_gpus_per_node"
CPUS_OF_A_DEVICE = 3
"""CPUs of each bundle with one accelerator (max_colocate_count of ResourcePoolManager, verl 0.9.1)."""
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
DEFAULT_UNITS = 8
NODE_RESOURCE = "transfer_queue.backend.SimpleStorage.required_node_resource"
CONTROLLER_CPUS = 1
"""TransferQueue 0.1.11: its controller and each storage unit hold one CPU."""


def list_demand_problems(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """List what verl asks for and the pods do not have."""
    if program.values.get("trainer.device", "cuda") == "cpu":
        return
    for key in (NODES, DEVICES):
        if program.values.get(key) == 0:
            yield Problem(key, "no device is left for the training; use 1 or more", since=ALL)
            return
    if program.separate:
        yield from _compare_separate_devices(program, spec)
    yield from list_cpu_problems(program, spec)


def _compare_separate_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """The devices of the training and of the engines are different."""
    groups = spec.cluster.workers
    keys = (NODES, DEVICES, ROLLOUT_NODES, ROLLOUT_DEVICES)
    numbers = [value for key in keys if isinstance(value := program.values.get(key), int)]
    total = count_devices(groups)
    if len(numbers) < len(keys) or not total:
        return
    needed = numbers[0] * numbers[1] + numbers[2] * numbers[3]
    if needed == total:
        return
    problem = "verl waits for the others" if needed > total else f"{total - needed} are not used"
    listed = ", ".join(f"{key}={number}" for key, number in zip(keys, numbers, strict=True))
    message = (
        f"{listed}: training and engines need {needed} accelerators, and the job has {total} "
        f"({describe_groups(groups)}): {problem}"
    )
    yield Problem(NODES, message, since=ALL if needed > total else None)


def count_cpus(group: WorkerGroup) -> int | None:
    """Count the CPUs of a pod for Ray's processes (num-cpus). None if its resources are unknown."""
    if group.num_cpus:
        return group.num_cpus
    return max(1, int(quantity_value(group.resources.cpu))) if group.resources else None


def list_cpu_problems(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """verl 0.9 asks for bundles of accelerators with CPUs, and its V1 trainer for storage units of samples."""
    version = find_version(spec)
    if version is not None and [int(part) for part in version.split(".")] < [0, 9]:
        return
    devices = read_verl_number(program, DEVICES) or 0
    nodes = read_verl_number(program, NODES) or 0
    counts = [count_cpus(group) for group in spec.cluster.workers]
    if not devices or not nodes or None in counts or not count_devices(spec.cluster.workers):
        return
    largest = max(count for count in counts if count)
    bundle = CPUS_OF_A_DEVICE * devices
    if largest < bundle:
        message = (
            f"{devices} accelerators with {CPUS_OF_A_DEVICE} CPUs each need {bundle} CPUs of one pod, and a pod has "
            f"{largest} (num-cpus): Ray waits for them; use {bundle} CPUs or more in {CPUS_FIELD}"
        )
        yield Problem(DEVICES, message, since="=0.9")
        return
    if version is None or program.own_config or program.values.get("trainer.use_v1") is False:
        return
    units = program.values.get(UNITS, DEFAULT_UNITS)
    if not isinstance(units, int):
        return
    total = sum(count * group.replicas for count, group in zip(counts, spec.cluster.workers, strict=True) if count)
    needed = bundle * nodes + units + CONTROLLER_CPUS
    if needed > total:
        message = (
            f"accelerators with {CPUS_OF_A_DEVICE} CPUs each, {units} storage units of verl's V1 trainer and their "
            f"controller need {needed} CPUs, and the pods have {total} (num-cpus): Ray waits for them; use more CPUs "
            f"in {CPUS_FIELD}, or {UNITS}={max(1, total - bundle * nodes - CONTROLLER_CPUS)}"
        )
        yield Problem(DEVICES, message)
    if NODE_RESOURCE not in program.given:
        message = (
            f"verl's V1 trainer starts its {units} storage units on all Ray nodes in turn, also on the head, which has "
            f"no CPUs, and waits for them (TransferQueue 0.1.11); add ++{NODE_RESOURCE}=CPU"
        )
        yield Problem(NODE_RESOURCE, message)


CPUS_FIELD = "spec.cluster.workers[].resources.cpu"
