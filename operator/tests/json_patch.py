"""JSON Patch (RFC 6902), as far as the operator uses it, for the API servers in memory."""

from __future__ import annotations

from rlt_core.job import Manifest


def apply_patch(manifest: Manifest, operations: list[Manifest]) -> Manifest:
    """The manifest after the operations, which are on the status or one of its fields. Raises KeyError.

    The first operation has the resourceVersion, which the caller compares.
    """
    same_version, *changes = operations
    assert same_version["path"] == "/metadata/resourceVersion"
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
