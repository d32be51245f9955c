"""Merge a part of a pod template into another: a subset of Kubernetes' strategic merge patch. Pure.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

MERGED_LISTS = {"containers": "name", "initContainers": "name"}
"""Lists whose items with equal keys are merged."""
REPLACED_LISTS = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists whose items with equal keys are replaced as a whole: a volume has one source, a variable one value."""
APPENDED_LISTS = {"tolerations"}
"""Lists that are concatenated."""
REPLACED_OBJECTS = {"readinessProbe"}
"""Objects that are replaced as a whole: a probe has one handler."""


def merge_overlay(base: Json, overlay: Json) -> dict[str, Any]:
    """Merge `overlay` into a copy of `base`.

    Objects are merged field by field, and null removes a field. Lists replace each other, except those above: their
    items keep their order, and new items are appended. REPLACED_OBJECTS replace each other too.
    """
    merged = dict(base)
    for name, value in overlay.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(name, merged.get(name), value)
    return merged


def _merge_value(name: str, base: Any, overlay: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(overlay, Mapping) and name not in REPLACED_OBJECTS:
        return merge_overlay(base, overlay)
    if isinstance(overlay, Mapping):
        return merge_overlay({}, overlay)
    if not isinstance(base, list) or not isinstance(overlay, list):
        return overlay
    if name in APPENDED_LISTS:
        return [*base, *overlay]
    key = MERGED_LISTS.get(name) or REPLACED_LISTS.get(name)
    if key is None or not all(isinstance(item, Mapping) and _is_key(item.get(key)) for item in [*base, *overlay]):
        return overlay
    return _merge_by_key(base, overlay, key, whole=name in REPLACED_LISTS)


def _is_key(value: object) -> bool:
    return isinstance(value, str | int)


def _merge_by_key(base: Sequence[Json], overlay: Sequence[Json], key: str, *, whole: bool) -> list[Json]:
    items = {item[key]: item for item in base}
    for item in overlay:
        items[item[key]] = item if whole else merge_overlay(items.get(item[key], {}), item)
    return list(items.values())
