"""The groups of pods: their names, what they ask for, and where they may run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.blocks.resources import Resources, Toleration
from rlt_api.finding import Finding, child
from rlt_api.model import quantity_value
from rlt_api.rules.shared_memory import OBJECT_STORE_SHARE, SHARED_MEMORY_SHARE, shared_memory
from rlt_api.spec import RLTrainingJobSpec

MIN_OBJECT_STORE = 75 * 2**20
"""Ray does not start with less (ray/_private/ray_constants.py, OBJECT_STORE_MINIMUM_MEMORY_BYTES)."""
LABEL = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
PREFIX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def resources_are_given(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A pod without requests gets what is left over, and is the first to be evicted."""
    for index, group in enumerate(spec.cluster.workers):
        if group.resources is None:
            field, fix = f"spec.cluster.workers[{index}].resources", "give it, or a runtimeRef whose node pools do"
            yield Finding(field, "none", "is needed", fix, "resources")
    for field, resources in _resources(spec):
        yield from resources_make_sense(resources, field)


def resources_make_sense(resources: Resources, field: str) -> Iterator[Finding]:
    """Something of each, and a /dev/shm that is a part of memory and holds Ray's object store."""
    for name in ("cpu", "memory"):
        if quantity_value(getattr(resources, name)) == 0:
            message, fix = "is nothing", "give what the pod needs"
            yield Finding(f"{field}.{name}", getattr(resources, name), message, fix, "resources")
    memory = quantity_value(resources.memory)
    shared = shared_memory(resources).size
    least = MIN_OBJECT_STORE / OBJECT_STORE_SHARE
    if resources.shared_memory and shared >= memory:
        yield Finding(
            f"{field}.sharedMemory",
            resources.shared_memory,
            f"is part of memory {resources.memory} and leaves nothing of it",
            f"use {int(memory * SHARED_MEMORY_SHARE / 2**20)}Mi, a quarter, or make memory larger",
            "shared-memory",
            (f"{field}.memory",),
        )
    elif memory and shared < least:
        name, value = (
            ("sharedMemory", resources.shared_memory) if resources.shared_memory else ("memory", resources.memory)
        )
        share = "" if resources.shared_memory else f", a quarter being /dev/shm ({shared / 2**20:.4g} MiB),"
        most = least if resources.shared_memory else least / SHARED_MEMORY_SHARE
        yield Finding(
            f"{field}.{name}",
            value or "none",
            f"is too small{share} for Ray's object store: it takes {OBJECT_STORE_SHARE:.0%} of /dev/shm and at least "
            f"{MIN_OBJECT_STORE / 2**20:.0f} MiB",
            f"use {int(most / 2**20)}Mi or more",
            "object-store",
            (f"{field}.sharedMemory",) if not resources.shared_memory else (),
        )


def labels_are_labels(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Kubernetes refuses pods with others, one by one, long after the job was taken."""
    for field, selector, tolerations in [
        ("spec.cluster.head", spec.cluster.head.node_selector, spec.cluster.head.tolerations),
        *(
            (f"spec.cluster.workers[{index}]", group.node_selector, group.tolerations)
            for index, group in enumerate(spec.cluster.workers)
        ),
    ]:
        yield from selector_makes_sense(selector, f"{field}.nodeSelector")
        yield from tolerations_make_sense(tolerations, f"{field}.tolerations")


def selector_makes_sense(selector: Mapping[str, str], field: str) -> Iterator[Finding]:
    """Keys and values as node labels have them."""
    for key, value in selector.items():
        if not is_label_key(key):
            yield Finding(
                child(field, key), key, "is no label's name", "write as kubectl get nodes --show-labels", "label"
            )
        elif not is_label_value(value):
            message = "is no label's value: letters, digits, - _ and . between letters or digits"
            yield Finding(child(field, key), value, message, "write as kubectl get nodes --show-labels", "label")


def tolerations_make_sense(tolerations: Sequence[Toleration], field: str) -> Iterator[Finding]:
    """https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    for index, toleration in enumerate(tolerations):
        path = f"{field}[{index}]"
        if toleration.key and not is_label_key(toleration.key):
            yield Finding(f"{path}.key", toleration.key, "is no taint's key", "write as kubectl describe node", "label")
        if toleration.value and not is_label_value(toleration.value):
            yield Finding(
                f"{path}.value", toleration.value, "is no taint's value", "write as kubectl describe node", "label"
            )
        if toleration.value and (toleration.operator == "Exists" or not toleration.key):
            why = "operator Exists compares no value" if toleration.key else "without a key every taint is accepted"
            fix = "leave it out, or give key and operator: Equal"
            yield Finding(
                f"{path}.value", toleration.value, why, fix, "toleration", (f"{path}.operator", f"{path}.key")
            )


def is_label_key(text: str) -> bool:
    """A qualified name: an optional DNS prefix and a slash, then up to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    return bool(re.fullmatch(LABEL, name)) and (
        not slash or (len(prefix) <= 253 and bool(re.fullmatch(PREFIX, prefix)))
    )


def is_label_value(text: str) -> bool:
    """Empty, or up to 63 characters."""
    return not text or bool(re.fullmatch(LABEL, text))


def groups_have_names(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """KubeRay tells groups apart by name, and the builtin trainer knows one group only."""
    groups, taken = spec.cluster.workers, list[str]()
    for index, group in enumerate(groups):
        if group.name in taken:
            field, fix = f"spec.cluster.workers[{index}]", f"use {group.name}-{index + 1}"
            field += ".name" if "name" in group.model_fields_set else ""
            yield Finding(field, group.name, "is the name of another worker group", fix, "worker-groups")
        taken.append(group.name)
    most = 2 if spec.rollout.mode == "separate" else 1
    if spec.framework.type == "builtin" and len(groups) > most:
        takes = "two groups in rollout.mode separate" if most == 2 else "one group, and two in rollout.mode separate"
        yield Finding(
            "spec.cluster.workers",
            f"{len(groups)} groups",
            f"framework builtin takes {takes}",
            f"leave {most}, or give framework.type: command",
            "worker-groups",
            ("spec.framework.type",),
        )


def ray_counts_the_cpus_there_are(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Ray starts a process for each CPU that it counts: more than there are, and they fail to register (verl's FAQ)."""
    for index, group in enumerate(spec.cluster.workers):
        if group.num_cpus is None or group.resources is None:
            continue
        cpus = quantity_value(group.resources.cpu)
        if group.num_cpus > max(1.0, cpus):
            yield Finding(
                f"spec.cluster.workers[{index}].numCpus",
                str(group.num_cpus),
                f"is more than resources.cpu {group.resources.cpu}: Ray's workers would fail to register",
                f"use {max(1, int(cpus))}",
                "ray-cpus",
                (f"spec.cluster.workers[{index}].resources.cpu",),
            )


def _resources(spec: RLTrainingJobSpec) -> Iterator[tuple[str, Resources]]:
    yield "spec.cluster.head.resources", spec.cluster.head.resources
    for index, group in enumerate(spec.cluster.workers):
        if group.resources:
            yield f"spec.cluster.workers[{index}].resources", group.resources


RULES = (resources_are_given, groups_have_names, ray_counts_the_cpus_there_are, labels_are_labels)
