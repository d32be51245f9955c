"""One part of a pod template laid over another: a small form of Kubernetes' strategic merge. Pure.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

MERGED = {"containers": "name", "initContainers": "name"}
"""Lists whose items of one key become one item: that of above laid over that of below."""
REPLACED = {
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
"""Lists whose item of above takes the place of that of below with the same key, whole: a volume has one source, a
variable one value."""
APPENDED = {"tolerations"}
"""Lists that are put one behind the other."""


def overlay(below: Json, above: Json) -> dict[str, Any]:
    """`above` laid over `below`; neither is changed.

    Objects are merged field by field, and null takes a field away. Lists are taken whole, but for those above: their
    items keep their places, and new ones come behind.
    """
    merged = dict(below)
    for name, value in above.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _value(name, merged.get(name), value)
    return merged


def _value(name: str, below: Any, above: Any) -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return overlay(below, above)
    if isinstance(above, Mapping):
        return overlay({}, above)
    if not isinstance(below, list) or not isinstance(above, list):
        return above
    if name in APPENDED:
        return [*below, *above]
    key = MERGED.get(name) or REPLACED.get(name)
    if key is None or not all(isinstance(item, Mapping) and _is_key(item.get(key)) for item in [*below, *above]):
        return above
    return _by_key(below, above, key, whole=name in REPLACED)


def _is_key(value: object) -> bool:
    return isinstance(value, str | int)


def _by_key(below: Sequence[Json], above: Sequence[Json], key: str, *, whole: bool) -> list[Json]:
    items = {item[key]: item for item in below}
    for item in above:
        items[item[key]] = item if whole else overlay(items.get(item[key], {}), item)
    return list(items.values())
