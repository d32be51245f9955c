"""Containers of other resources as the cluster of a job."""

from __future__ import annotations

from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.launch import apply_environment

Json = dict[str, Any]


class Reader:
    """A JSON object whose fields are taken one by one. What remains is left out."""

    def __init__(self, value: Any, path: str) -> None:
        self.path = path
        self.left = dict(value) if isinstance(value, dict) else {}

    def take(self, key: str, default: Any = None) -> Any:
        """Take a field."""
        return self.left.pop(key, default)

    def child(self, key: str) -> Reader:
        """Take an object."""
        return Reader(self.take(key), f"{self.path}.{key}")

    def leave_out(self, draft: Draft, why: str = "no counterpart") -> None:
        """Note what was not taken."""
        for key, value in self.left.items():
            if value not in (None, {}, [], ""):
                draft.leave_out(f"{self.path}.{key}", why)


def apply_container(draft: Draft, container: Reader, target: str) -> None:
    """Image, environment, resources and devices of a container. `target`: cluster.head or cluster.workers[]."""
    if image := container.take("image"):
        if draft.get("cluster.image") not in (None, image):
            draft.leave_out(f"{container.path}.image {image}", "a job has one image")
        else:
            draft.put("cluster.image", image)
    if policy := container.take("imagePullPolicy"):
        draft.put("cluster.imagePullPolicy", policy)
    apply_env(draft, container.take("env", []))
    apply_resources(draft, container.child("resources"), target)
    for key in ("name", "ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        container.take(key)
    container.leave_out(draft, f"add it to spec.{target}.podTemplate if the job needs it")


def apply_env(draft: Draft, env: list[Json]) -> None:
    """Environment variables of a container; references stay references."""
    for each in env:
        source = each.get("valueFrom") or {}
        kinds = [kind for kind in ("secretKeyRef", "configMapKeyRef") if kind in source]
        if kinds:
            kept = {key: source[kinds[0]][key] for key in ("name", "key")}
            known = draft.get("cluster.env") or []
            if all(other["name"] != each["name"] for other in known):
                draft.put("cluster.env", [*known, {"name": each["name"], kinds[0]: kept}])
        elif source:
            draft.leave_out(f"variable {each['name']}", "only Secrets and ConfigMaps are supported")
        else:
            apply_environment(draft, {each["name"]: str(each.get("value", ""))}, {})


def apply_resources(draft: Draft, resources: Reader, target: str) -> None:
    """CPU, memory and devices: the limits, otherwise the requests."""
    amounts = {**(resources.take("requests") or {}), **(resources.take("limits") or {})}
    for key in ("cpu", "memory"):
        if key in amounts:
            draft.put(f"{target}.resources.{key}", str(amounts.pop(key)))
    devices = {key: value for key, value in amounts.items() if key.endswith(("/gpu", "/rocm", "/npu")) and int(value)}
    for name, count in devices.items():
        draft.put(f"{target}.accelerator.resourceName", name)
        draft.put(f"{target}.accelerator.count", int(count))
    for name in amounts.keys() - devices.keys():
        draft.leave_out(f"{resources.path} {name}", "the network profile requests devices of the fabric")


def apply_pod(draft: Draft, pod: Reader, target: str) -> None:
    """Placement and the first container of a pod."""
    for key in ("nodeSelector", "tolerations"):
        if value := pod.take(key):
            draft.put(f"{target}.{key}", value)
    if secrets := pod.take("imagePullSecrets"):
        draft.put("cluster.imagePullSecrets", [each["name"] for each in secrets])
    for key in ("schedulerName", "priorityClassName"):
        if value := pod.take(key):
            draft.put(f"scheduling.{key}", value)
    if pod.take("hostNetwork"):
        draft.put("network.attach", "hostNetwork")
    containers = pod.take("containers") or [{}]
    for volume in pod.take("volumes") or []:
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        why = f"set spec.storage.claimName: {claim}" if claim else f"add it to spec.{target}.podTemplate if needed"
        if (volume.get("emptyDir") or {}).get("medium") != "Memory":
            draft.leave_out(f"{pod.path}.volumes {volume.get('name')}", why)
    if len(containers) > 1:
        draft.leave_out(f"{pod.path}.containers[1:]", f"add them to spec.{target}.podTemplate")
    apply_container(draft, Reader(containers[0], f"{pod.path}.containers[0]"), target)
    for key in ("restartPolicy", "dnsPolicy", "terminationGracePeriodSeconds"):
        pod.take(key)
    pod.leave_out(draft, f"add it to spec.{target}.podTemplate if the job needs it")
