"""Fault tolerance of Ray's GCS, which KubeRay's gcsFaultToleranceOptions configure: not supported.

A new head would have the state of the former one. The program has no use for it: it runs on the head and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.findings.finding import Finding, child_path, printable, remove
from rlt_api.spec.job_spec import RLTrainingJobSpec

FAULT_TOLERANCE = (
    "RAY_REDIS_ADDRESS",
    "REDIS_USERNAME",
    "RAY_external_storage_namespace",
    "RAY_gcs_storage",
    "RAY_gcs_storage_path",
)
"""Variables that select where Ray's GCS stores its state (ray-operator/controllers/ray/utils/constant.go, 1.7.0).

KubeRay rejects a RayCluster with the first or second one and without gcsFaultToleranceOptions (validation.go).
"""
ANNOTATIONS = ("ray.io/ft-enabled", "ray.io/external-storage-namespace")
"""KubeRay's annotations of a RayCluster with the same effect."""
NO_FAULT_TOLERANCE = "is for a fault-tolerant GCS, which is not supported: the program ends with the head"
FIX = "remove it; the next attempt resumes from the latest checkpoint (failurePolicy)"


def validate_fault_tolerance(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A podTemplate must not configure fault tolerance of Ray's GCS: the program runs on the head and ends with it."""
    groups = {
        "spec.cluster.head": spec.cluster.head.pod_template,
        **{f"spec.cluster.workers[{index}]": group.pod_template for index, group in enumerate(spec.cluster.workers)},
    }
    for path, template in groups.items():
        for field, name in _find_settings(template, f"{path}.podTemplate"):
            edits = remove(field.removesuffix(".name"))
            yield Finding(field, printable(name), NO_FAULT_TOLERANCE, FIX, rule="fault-tolerance", edits=edits)


def _find_settings(template: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the field and the name of each variable and annotation."""
    for name in _get(_get(template, "metadata", dict), "annotations", dict):
        if name in ANNOTATIONS:
            yield child_path(f"{path}.metadata.annotations", name), name
    for index, container in enumerate(_get(_get(template, "spec", dict), "containers", list)):
        for number, variable in enumerate(_get(container, "env", list)):
            name = _get(variable, "name", str)
            if name in FAULT_TOLERANCE:
                yield f"{path}.spec.containers[{index}].env[{number}].name", name


def _get(value: Any, key: str, kind: type[Any]) -> Any:
    """The value of the key. Empty if it is missing or has another type, which another rule reports."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, kind) else kind()


RULES = (validate_fault_tolerance,)
