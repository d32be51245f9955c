"""Worker groups: names, resources, node selectors and tolerations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.blocks.resources import Resources, Toleration
from rlt_api.findings.finding import Finding, child_path, use
from rlt_api.findings.kinds import below, replaceable, superfluous
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
            field = f"spec.cluster.workers[{index}].resources"
            fix = "add it, or a runtimeRef with node pools"
            yield Finding(field, "none", "is required", fix, rule="resources")
    for field, resources in _resources(spec):
        yield from validate_resources(resources, field)


def validate_resources(resources: Resources, field: str) -> Iterator[Finding]:
    """Validate resources: cpu and memory above 0, /dev/shm less than memory and large enough for the object store."""
    for name in ("cpu", "memory"):
        value = getattr(resources, name)
        if quantity_value(value) == 0:
            fix = "use the amount that the pod needs"
            yield Finding(f"{field}.{name}", value, "must be above 0", fix, rule="resources")
    given = resources.shared_memory
    memory = quantity_value(resources.memory)
    shared = size_shared_memory(resources).size
    minimum = MIN_OBJECT_STORE / OBJECT_STORE_SHARE
    if given and shared >= memory:
        path = f"{field}.sharedMemory"
        message = f"is part of memory {resources.memory} and must be less"
        quarter = f"{int(memory * SHARED_MEMORY_SHARE / 2**20)}Mi"
        fix = f"use {quarter}, a quarter, or increase memory"
        involved = (f"{field}.memory",)
        edits = use(path, quarter)
        yield Finding(path, given, message, fix, rule="shared-memory", involved=involved, edits=edits)
    elif memory and shared < minimum:
        object_store = (
            f"for Ray's object store, which gets {OBJECT_STORE_SHARE:.0%} of /dev/shm and needs "
            f"{MIN_OBJECT_STORE / 2**20:.0f} MiB"
        )
        path = f"{field}.sharedMemory"
        if given:
            message = f"is too small {object_store}"
            yield below(path, given, f"{int(minimum / 2**20)}Mi", message, rule="object-store")
        else:
            message = f"is too small (/dev/shm is a quarter, {shared / 2**20:.4g} MiB) {object_store}"
            needed = f"{int(minimum / SHARED_MEMORY_SHARE / 2**20)}Mi"
            value = resources.memory
            yield below(f"{field}.memory", value, needed, message, rule="object-store", involved=(path,))


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
        path = child_path(field, key)
        if not is_label_key(key):
            fix = "use a key that kubectl get nodes --show-labels prints"
            yield Finding(path, key, "is not a valid label key", fix, rule="label")
        elif not is_label_value(value):
            message = "is not a valid label value: letters, digits, - _ and . between letters or digits"
            fix = "use a value that kubectl get nodes --show-labels prints"
            yield Finding(path, value, message, fix, rule="label")


def validate_tolerations(tolerations: Sequence[Toleration], field: str) -> Iterator[Finding]:
    """Validate tolerations: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    fix = "use a taint that kubectl describe node prints"
    for index, toleration in enumerate(tolerations):
        key = toleration.key
        value = toleration.value
        key_field = f"{field}[{index}].key"
        value_field = f"{field}[{index}].value"
        if key and not is_label_key(key):
            yield Finding(key_field, key, "is not a valid taint key", fix, rule="label")
        if value and not is_label_value(value):
            yield Finding(value_field, value, "is not a valid taint value", fix, rule="label")
        if value and (toleration.operator == "Exists" or not key):
            message = "is not used with operator Exists" if key else "is not used without a key"
            instead = "add key and operator: Equal"
            involved = (f"{field}[{index}].operator", key_field)
            yield superfluous(value_field, value, message, instead=instead, rule="toleration", involved=involved)


def is_label_key(text: str) -> bool:
    """Return whether the text is a qualified name: an optional DNS prefix and a slash, then up to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    has_valid_prefix = len(prefix) <= 253 and bool(re.fullmatch(PREFIX, prefix))
    return bool(re.fullmatch(LABEL, name)) and (not slash or has_valid_prefix)


def is_label_value(text: str) -> bool:
    """Return whether the text is a label value: empty, or up to 63 characters."""
    return not text or bool(re.fullmatch(LABEL, text))


def validate_worker_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Worker groups must have unique names (KubeRay)."""
    groups = spec.cluster.workers
    taken: list[str] = []
    rule = "worker-groups"
    for index, group in enumerate(groups):
        if group.name in taken:
            path = f"spec.cluster.workers[{index}]"
            field = f"{path}.name" if "name" in group.model_fields_set else path
            message = "is the name of another worker group"
            other = f"{group.name}-{index + 1}"
            yield Finding(field, group.name, message, f"use {other}", rule=rule, edits=use(f"{path}.name", other))
        taken.append(group.name)


def validate_group_count(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A job has one worker group, or two in rollout.mode separate. Type command has any number."""
    groups = spec.cluster.workers
    maximum = 2 if spec.rollout.mode == "separate" else 1
    framework = spec.framework.type
    rule = "worker-groups"
    if len(groups) > maximum:
        value = f"{len(groups)} groups"
        message = f"is more than the {maximum} of framework {framework} in rollout.mode {spec.rollout.mode}"
        fix = f"keep {maximum}, or use framework.type: command"
        yield Finding("spec.cluster.workers", value, message, fix, rule=rule, involved=("spec.framework.type",))


def validate_ray_cpus(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """numCpus must not be above resources.cpu: Ray starts a process for each CPU, and too many fail to register (verl's
    FAQ)."""
    for index, group in enumerate(spec.cluster.workers):
        if group.num_cpus is None or group.resources is None:
            continue
        cpus = quantity_value(group.resources.cpu)
        if group.num_cpus > max(1.0, cpus):
            field = f"spec.cluster.workers[{index}].numCpus"
            message = f"is more than resources.cpu {group.resources.cpu}: some processes of Ray would fail to register"
            involved = (f"spec.cluster.workers[{index}].resources.cpu",)
            yield replaceable(field, group.num_cpus, message, max(1, int(cpus)), rule="ray-cpus", involved=involved)


def _resources(spec: RLTrainingJobSpec) -> Iterator[tuple[str, Resources]]:
    yield "spec.cluster.head.resources", spec.cluster.head.resources
    for index, group in enumerate(spec.cluster.workers):
        if group.resources:
            yield f"spec.cluster.workers[{index}].resources", group.resources


RULES = (validate_pod_resources, validate_worker_groups, validate_ray_cpus, validate_scheduling_labels)
