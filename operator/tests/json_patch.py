"""JSON Patch (RFC 6902), as far as the operator uses it, for the API servers in memory."""

from __future__ import annotations

import copy
from typing import Any

from rlt_core.job import Manifest


def apply_patch(manifest: Manifest, operations: list[Manifest]) -> Manifest:
    """The manifest after the operations, which are on the status or one of its fields, or on the spec. Raises KeyError.

    The first operation has the resourceVersion, which the caller compares.
    """
    same_version, *changes = operations
    assert same_version["path"] == "/metadata/resourceVersion"
    if all(change["path"].startswith("/spec/") for change in changes):
        return _set_fields(manifest, changes)
    status = dict(manifest.get("status", {}))
    for change in changes:
        name = change["path"].removeprefix("/status").removeprefix("/")
        assert "/" not in name
        if change["op"] == "remove":
            del status[name]
        elif name:
            manifest["status"]  # the API server rejects a field of an object that does not exist
            status[name] = change["value"]
        else:
            status = dict(change["value"])
    return {**manifest, "status": status}


def _set_fields(manifest: Manifest, changes: list[Manifest]) -> Manifest:
    changed = copy.deepcopy(manifest)
    for change in changes:
        *parents, name = change["path"].removeprefix("/").split("/")
        at: Any = changed
        for parent in parents:
            at = at[int(parent) if isinstance(at, list) else parent]
        assert change["op"] == "add" or name in at
        at[name] = change["value"]
    return changed
