"""What a RayCluster may hold, according to the installed RayCluster CRD. Pure.

The API server drops fields that a CRD lacks, or responds to their server-side apply with status 500. Neither reports
the fields to the user. KubeRay's CRD embeds the pod template of the Kubernetes version that it was built with, and so
may lack a pod field that the installed Kubernetes has. The CRD has no version, which is derived from its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlt_core.crd_fields import join, list_fields

KUBERAY_MINIMUM = "1.3.2"
"""The oldest KubeRay whose RayCluster CRD the tests validate every golden manifest with."""

MARKS = {
    "1.7 or newer": "spec.networkPolicy",
    "1.6": "spec.upgradeStrategy",
    "1.5": "spec.headGroupSpec.labels",
    "1.4": "spec.autoscalerOptions.version",
}
"""KubeRay's version -> a field that it introduced, the newest first (1.7: its API reference; the others: the CRDs)."""
OLDEST = "1.3 or older"

POD_FIELDS_SINCE = {
    "lifecycle.stopSignal": "1.4",
    "containers[].restartPolicyRules": "1.5",
    "initContainers[].restartPolicyRules": "1.5",
    "ephemeralContainers[].restartPolicyRules": "1.5",
    "spec.hostnameOverride": "1.5",
    "projected.sources[].podCertificate": "1.5",
    "valueFrom.fileKeyRef": "1.5",
    "podCertificate.userAnnotations": "1.6",
    "spec.workloadRef": "1.6",
    "spec.schedulingGroup": "1.7",
}
"""End of a path below a pod template -> the first KubeRay whose CRD has it, for fields newer than KubeRay 1.3."""


@dataclass(frozen=True)
class Replaced:
    """A field of an alpha API of Kubernetes, whose pod template KubeRay's CRD has."""

    by: str
    """The field of the next version of the API."""
    fix: str


REPLACED_FIELDS = {
    "spec.workloadRef": Replaced(
        by="spec.schedulingGroup",
        fix="Create the job again with spec.scheduling.schedulerName kai-scheduler, scheduler-plugins-scheduler, "
        "volcano or yunikorn, or with Kueue's queueName.",
    )
}
"""End of a path below a pod template, for fields that a newer KubeRay has replaced (1.7, with Kubernetes 1.36)."""


@dataclass(frozen=True)
class KubeRay:
    """What a RayCluster of ray.io/v1 may hold."""

    fields: frozenset[str]
    """Paths as in `crd_fields`."""

    @property
    def version(self) -> str:
        """Its minor version, derived from the fields."""
        return next((version for version, field in MARKS.items() if field in self.fields), OLDEST)

    def list_lost_fields(self, manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Paths of the manifest's fields that the CRD does not have, such as ``spec.workerGroupSpecs[0].nonsense``."""
        return tuple(self._iterate_lost_fields(manifest, "", ""))

    def _iterate_lost_fields(self, value: object, path: str, shown: str) -> Iterator[str]:
        if isinstance(value, Mapping):
            is_map = f"{path}{{}}" in self.fields
            is_open = f"{path}.*" in self.fields
            for name, child in value.items():
                below = join(path, name)
                shown_below = join(shown, name)
                if is_map or below in self.fields:
                    yield from self._iterate_lost_fields(child, f"{path}{{}}" if is_map else below, shown_below)
                elif not is_open:
                    yield shown_below
        elif isinstance(value, list):
            for index, child in enumerate(value):
                yield from self._iterate_lost_fields(child, f"{path}[]", f"{shown}[{index}]")


def parse_kuberay(crd: Mapping[str, Any]) -> KubeRay:
    """Parse the CustomResourceDefinition rayclusters.ray.io (apiextensions.k8s.io/v1). Without v1 it has no fields."""
    return KubeRay(list_fields(crd, "v1") | {"metadata", "metadata.*"})  # the CRD does not define metadata


def describe_lost_fields(kuberay: KubeRay, ray_cluster: Mapping[str, Any]) -> str | None:
    """The message for a RayCluster that would lose fields; None if it would lose none."""
    lost = kuberay.list_lost_fields(ray_cluster)
    if not lost:
        return None
    fields = ", ".join(path + _describe_origin(path) for path in lost)
    return (
        f"The RayCluster CRD in this cluster (KubeRay {kuberay.version}, by its fields) lacks {fields}. "
        "Install the CRDs of a newer KubeRay (`helm upgrade` does not update CRDs) or remove these fields from the job."
    )


def describe_replaced_field(kuberay: KubeRay, ray_cluster: Mapping[str, Any]) -> str | None:
    """The message for a RayCluster with a field that a newer KubeRay has replaced; None without one."""
    for path in kuberay.list_lost_fields(ray_cluster):
        general = re.sub(r"\[\d+\]", "[]", path)
        for end, replaced in REPLACED_FIELDS.items():
            if general.endswith(f".{end}") and general.removesuffix(end) + replaced.by in kuberay.fields:
                crd = f"The RayCluster CRD in this cluster (KubeRay {kuberay.version}, by its fields)"
                return f"{crd} has {replaced.by}, which rlt does not set, instead of {path}. {replaced.fix}"
    return None


def _describe_origin(path: str) -> str:
    general = re.sub(r"\[\d+\]", "[]", path)
    return next((f" (since {version})" for end, version in POD_FIELDS_SINCE.items() if general.endswith(f".{end}")), "")
