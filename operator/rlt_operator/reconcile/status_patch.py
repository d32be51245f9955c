"""The write of a status: a JSON Patch (RFC 6902) with the fields that have changed. Pure.

It costs the API server less than server-side apply of the whole status. Fields that only a newer operator has stay as
they are.
"""

from __future__ import annotations

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core.job import Manifest


def dump_changed(status: RLTrainingJobStatus, other: RLTrainingJobStatus) -> Manifest:
    """The JSON of the fields that differ from another status: all of it would take longer than a plan."""
    changed = {name for name in type(status).model_fields if getattr(status, name) != getattr(other, name)}
    return status.model_dump(mode="json", by_alias=True, exclude_none=True, include=changed)


def build_status_patch(version: str, before: Manifest | None, after: Manifest) -> list[Manifest]:
    """Build the patch from one status to another, or from a part of it to the same part. `before` is None without one.

    The API server rejects it if the job has another resourceVersion than `version`.
    """
    same_version = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
    if before is None:
        return [same_version, {"op": "add", "path": "/status", "value": after}]
    changed = (name for name in after if name not in before or before[name] != after[name])
    added = ({"op": "add", "path": f"/status/{name}", "value": after[name]} for name in changed)
    removed = ({"op": "remove", "path": f"/status/{name}"} for name in before if name not in after)
    return [same_version, *added, *removed]
