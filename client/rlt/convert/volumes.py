"""The claim that all pods of the source mount at one path: spec.storage."""

from __future__ import annotations

from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.pods import Pod


def move_shared_claim(draft: Draft, pods: list[Pod]) -> None:
    """Set spec.storage to the first claim that all pods mount at the same path, and nowhere else."""
    if not pods or draft.get("storage.claimName"):
        return
    for claim in _list_claims(pods[0]):
        found = [_find_mount(pod, claim) for pod in pods]
        paths = {mount["mountPath"] for mount in found if mount}
        if all(found) and len(paths) == 1:
            draft.put("storage.claimName", claim)
            draft.put("storage.mountPath", paths.pop())
            for pod in pods:
                _remove_claim(pod, claim)
            return


def _list_claims(pod: Pod) -> list[str]:
    sources = [each.get("persistentVolumeClaim") for each in pod.spec.get("volumes", [])]
    claims = [each["claimName"] for each in sources if isinstance(each, dict) and [*each] == ["claimName"]]
    return [each for each in claims if isinstance(each, str)]


def _find_mount(pod: Pod, claim: str) -> dict[str, Any] | None:
    """The mount of a claim. None if it has none, several, or one with further fields."""
    names = [_name(each) for each in pod.spec.get("volumes", []) if claim == _name_claim(each)]
    mounts = [each for each in pod.container.get("volumeMounts", []) if [each.get("name")] == names]
    plain = len(mounts) == 1 and set(mounts[0]) == {"name", "mountPath"} and isinstance(mounts[0]["mountPath"], str)
    return mounts[0] if plain and not _is_used_elsewhere(pod, names[0]) else None


def _is_used_elsewhere(pod: Pod, name: str) -> bool:
    others = [*pod.sidecars, *pod.spec.get("initContainers", [])]
    mounts = [mount for each in others if isinstance(each, dict) for mount in each.get("volumeMounts") or []]
    return any(isinstance(mount, dict) and mount.get("name") == name for mount in mounts)


def _remove_claim(pod: Pod, claim: str) -> None:
    names = [_name(each) for each in pod.spec["volumes"] if claim == _name_claim(each)]
    for owner, key in ((pod.spec, "volumes"), (pod.container, "volumeMounts")):
        owner[key] = [each for each in owner[key] if _name(each) not in names]
        if not owner[key]:
            del owner[key]


def _name(volume: Any) -> Any:
    return volume.get("name")


def _name_claim(volume: Any) -> Any:
    source = volume.get("persistentVolumeClaim")
    return source.get("claimName") if isinstance(source, dict) else None
