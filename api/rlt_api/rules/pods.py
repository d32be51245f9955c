"""Worker groups: names, resources, node selectors and tolerations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.blocks.resources import Resources, Toleration
from rlt_api.findings.finding import Finding, child_path, remove, use
from rlt_api.model import quantity_value
from rlt_api.rules.shared_memory import OBJECT_STORE_SHARE, SHARED_MEMORY_SHARE, size_shared_memory
from rlt_api.spec.job_spec import RLTrainingJobSpec

MIN_OBJECT_STORE = 75 * 2**20
"""Ray's minimum in bytes (ray/_private/ray_constants.py, OBJECT_STORE_MINIMUM_MEMORY_BYTES)."""
LABEL = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def validate_pod_resources(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Each worker group or its node pool must give resources: a pod without requests is evicted first."""
    for index, group in enumerate(spec.cluster.workers):
        if group.resources is None:
            field, fix = f"spec.cluster.workers[{index}].resources", "add it, or a runtimeRef with node pools"
            yield Finding(field, "none", "is required", fix, "resources")
    for field, resources in _resources(spec):
        yield from validate_resources(resources, field)


def validate_resources(resources: Resources, field: str) -> Iterator[Finding]:
    """Validate resources: cpu and memory above 0, /dev/shm less than memory and large enough for the object store."""
    for name in ("cpu", "memory"):
        if quantity_value(getattr(resources, name)) == 0:
            message, fix = "must be above 0", "use the amount that the pod needs"
            yield Finding(f"{field}.{name}", getattr(resources, name), message, fix, "resources")
    memory = quantity_value(resources.memory)
    shared = size_shared_memory(resources).size
    min_shared_memory = MIN_OBJECT_STORE / OBJECT_STORE_SHARE
    if resources.shared_memory and shared >= memory:
        yield Finding(
            f"{field}.sharedMemory",
            resources.shared_memory,
            f"is part of memory {resources.memory} and must be less",
            f"use {int(memory * SHARED_MEMORY_SHARE / 2**20)}Mi, a quarter, or increase memory",
            "shared-memory",
            (f"{field}.memory",),
            use(f"{field}.sharedMemory", f"{int(memory * SHARED_MEMORY_SHARE / 2**20)}Mi"),
        )
    elif memory and shared < min_shared_memory:
        name, value = (
            ("sharedMemory", resources.shared_memory) if resources.shared_memory else ("memory", resources.memory)
        )
        share = "" if resources.shared_memory else f" (/dev/shm is a quarter, {shared / 2**20:.4g} MiB)"
        minimum = min_shared_memory if resources.shared_memory else min_shared_memory / SHARED_MEMORY_SHARE
        yield Finding(
            f"{field}.{name}",
            value or "none",
            f"is too small{share} for Ray's object store, which gets {OBJECT_STORE_SHARE:.0%} of /dev/shm and needs "
            f"{MIN_OBJECT_STORE / 2**20:.0f} MiB",
            f"use {int(minimum / 2**20)}Mi or more",
            "object-store",
            (f"{field}.sharedMemory",) if not resources.shared_memory else (),
            use(f"{field}.{name}", f"{int(minimum / 2**20)}Mi"),
        )


def validate_scheduling_labels(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """nodeSelector and tolerations must have valid keys and values: Kubernetes rejects the pods otherwise."""
    for field, selector, tolerations in [
        ("spec.cluster.head", spec.cluster.head.node_selector, spec.cluster.head.tolerations),
        *(
            (f"spec.cluster.workers[{index}]", group.node_selector, group.tolerations)
            for index, group in enumerate(spec.cluster.workers)
        ),
    ]:
        yield from validate_node_selector(selector, f"{field}.nodeSelector")
        yield from validate_tolerations(tolerations, f"{field}.tolerations")


def validate_node_selector(selector: Mapping[str, str], field: str) -> Iterator[Finding]:
    """Validate keys and values of a node selector."""
    for key, value in selector.items():
        if not is_label_key(key):
            fix = "use a key that kubectl get nodes --show-labels prints"
            yield Finding(child_path(field, key), key, "is not a valid label key", fix, "label")
        elif not is_label_value(value):
            message = "is not a valid label value: letters, digits, - _ and . between letters or digits"
            fix = "use a value that kubectl get nodes --show-labels prints"
            yield Finding(child_path(field, key), value, message, fix, "label")


def validate_tolerations(tolerations: Sequence[Toleration], field: str) -> Iterator[Finding]:
    """Validate tolerations: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    for index, toleration in enumerate(tolerations):
        path = f"{field}[{index}]"
        if toleration.key and not is_label_key(toleration.key):
            fix = "use a taint that kubectl describe node prints"
            yield Finding(f"{path}.key", toleration.key, "is not a valid taint key", fix, "label")
        if toleration.value and not is_label_value(toleration.value):
            fix = "use a taint that kubectl describe node prints"
            yield Finding(f"{path}.value", toleration.value, "is not a valid taint value", fix, "label")
        if toleration.value and (toleration.operator == "Exists" or not toleration.key):
            message = "is not used with operator Exists" if toleration.key else "is not used without a key"
            fix, involved = "remove it, or add key and operator: Equal", (f"{path}.operator", f"{path}.key")
            edits = remove(f"{path}.value")
            yield Finding(f"{path}.value", toleration.value, message, fix, "toleration", involved, edits)


def is_label_key(text: str) -> bool:
    """Return whether the text is a qualified name: an optional DNS prefix and a slash, then up to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    return bool(re.fullmatch(LABEL, name)) and (
        not slash or (len(prefix) <= 253 and bool(re.fullmatch(PREFIX, prefix)))
    )


def is_label_value(text: str) -> bool:
    """Return whether the text is a label value: empty, or up to 63 characters."""
    return not text or bool(re.fullmatch(LABEL, text))


def validate_worker_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Worker groups must have unique names (KubeRay); builtin and verl have one group, or two in rollout.mode
    separate."""
    groups, taken = spec.cluster.workers, list[str]()
    for index, group in enumerate(groups):
        if group.name in taken:
            path, other = f"spec.cluster.workers[{index}]", f"{group.name}-{index + 1}"
            field = f"{path}.name" if "name" in group.model_fields_set else path
            message, edits = "is the name of another worker group", use(f"{path}.name", other)
            yield Finding(field, group.name, message, f"use {other}", "worker-groups", edits=edits)
        taken.append(group.name)
    max_groups = 2 if spec.rollout.mode == "separate" else 1
    if spec.framework.type != "command" and len(groups) > max_groups:
        mode = f" in rollout.mode {spec.rollout.mode}"
        yield Finding(
            "spec.cluster.workers",
            f"{len(groups)} groups",
            f"is more than the {max_groups} of framework {spec.framework.type}{mode}",
            f"keep {max_groups}, or use framework.type: command",
            "worker-groups",
            ("spec.framework.type",),
        )


def validate_ray_cpus(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """numCpus must not be above resources.cpu: Ray starts a process for each CPU, and too many fail to register (verl's
    FAQ)."""
    for index, group in enumerate(spec.cluster.workers):
        if group.num_cpus is None or group.resources is None:
            continue
        cpus = quantity_value(group.resources.cpu)
        if group.num_cpus > max(1.0, cpus):
            yield Finding(
                f"spec.cluster.workers[{index}].numCpus",
                str(group.num_cpus),
                f"is more than resources.cpu {group.resources.cpu}: some processes of Ray would fail to register",
                f"use {max(1, int(cpus))}",
                "ray-cpus",
                (f"spec.cluster.workers[{index}].resources.cpu",),
                use(f"spec.cluster.workers[{index}].numCpus", max(1, int(cpus))),
            )


def _resources(spec: RLTrainingJobSpec) -> Iterator[tuple[str, Resources]]:
    yield "spec.cluster.head.resources", spec.cluster.head.resources
    for index, group in enumerate(spec.cluster.workers):
        if group.resources:
            yield f"spec.cluster.workers[{index}].resources", group.resources


RULES = (validate_pod_resources, validate_worker_groups, validate_ray_cpus, validate_scheduling_labels)
