"""The KubeRay that is installed, as its RayCluster CRD shows it: what a RayCluster may hold there. Pure.

The API server drops fields that a CRD lacks, or answers a server-side apply of them with status 500; neither tells the
user anything. KubeRay's CRD embeds the whole pod template of the Kubernetes that it was built with, so a pod field that
Kubernetes knows may still be one that the CRD lacks. The CRD names no version: its fields do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
"""Part of an OpenAPI v3 schema."""

MARKS = {
    "1.7 or newer": "spec.networkPolicy",
    "1.6": "spec.upgradeStrategy",
    "1.5": "spec.headGroupSpec.labels",
    "1.4": "spec.autoscalerOptions.version",
}
"""KubeRay's version -> a field that came with it, the newest first (1.7: its API reference; the rest: the CRDs)."""
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
"""End of a path below a pod template -> the KubeRay whose CRD has it first, for fields newer than KubeRay 1.3's."""


@dataclass(frozen=True)
class KubeRay:
    """What a RayCluster of ray.io/v1 may hold."""

    fields: frozenset[str]
    """Paths such as ``spec.workerGroupSpecs[].template.spec.nodeSelector{}``: [] an item of a list, {} a value of a map
    with any keys, and ``.*`` below what takes any field."""

    @property
    def version(self) -> str:
        """Its version as far as the fields tell."""
        return next((version for version, field in MARKS.items() if field in self.fields), OLDEST)

    def lacks(self, manifest: Mapping[str, Any]) -> tuple[str, ...]:
        """Paths of the manifest's fields that the CRD does not have, such as ``spec.workerGroupSpecs[0].nonsense``."""
        return tuple(self._lacks(manifest, "", ""))

    def _lacks(self, value: object, path: str, shown: str) -> Iterator[str]:
        if isinstance(value, Mapping):
            is_map, is_open = f"{path}{{}}" in self.fields, f"{path}.*" in self.fields
            for name, child in value.items():
                below, shown_below = _join(path, name), _join(shown, name)
                if is_map or below in self.fields:
                    yield from self._lacks(child, f"{path}{{}}" if is_map else below, shown_below)
                elif not is_open:
                    yield shown_below
        elif isinstance(value, list):
            for index, child in enumerate(value):
                yield from self._lacks(child, f"{path}[]", f"{shown}[{index}]")


def parse_kuberay(crd: Mapping[str, Any]) -> KubeRay:
    """From the CustomResourceDefinition rayclusters.ray.io (apiextensions.k8s.io/v1). No fields if it has no v1."""
    schemas = [each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"] if each["name"] == "v1"]
    paths = [path for schema in schemas for path in _paths(schema, "")]
    return KubeRay(frozenset([*paths, "metadata", "metadata.*"]))  # an object's metadata is Kubernetes', not the CRD's


def dropped(kuberay: KubeRay, ray_cluster: Mapping[str, Any]) -> str | None:
    """What to tell of a RayCluster that would lose fields, and what to do; None if it would lose none."""
    lost = kuberay.lacks(ray_cluster)
    if not lost:
        return None
    fields = ", ".join(path + _since(path) for path in lost)
    return (
        f"The RayCluster CRD in this cluster (KubeRay {kuberay.version}, by its fields) lacks {fields}. "
        "Install the CRDs of a newer KubeRay (`helm upgrade` leaves CRDs as they are), or leave that out of the job."
    )


def _since(path: str) -> str:
    general = re.sub(r"\[\d+\]", "[]", path)
    return next((f" (since {version})" for end, version in POD_FIELDS_SINCE.items() if general.endswith(f".{end}")), "")


def _paths(schema: Schema, path: str) -> Iterator[str]:
    yield path
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}.*"
    for name, child in schema.get("properties", {}).items():
        yield from _paths(child, _join(path, name))
    if "items" in schema:
        yield from _paths(schema["items"], f"{path}[]")
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        yield from _paths(values, f"{path}{{}}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
