"""An API server in memory: uids, resourceVersions, preconditions, owner references and watch events.

It stores the objects as JSON text, so that a copy of the whole server is a copy of a dictionary.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from json_patch import apply_patch

from rlt_core.children.programs import is_programs
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_operator.conditions import format_time

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WATCHED = ("rltrainingjobs", "rayclusters", "pods", "configmaps", "programs", "nodes")
"""The resources whose changes are kept for the watches. Programs are ConfigMaps with their own watch."""
FOREGROUND = "foregroundDeletion"

Change = tuple[str, str]
"""Type and object of a watch event; LIST and a list for a watch that was interrupted.

For a watch of kopf instead LISTED and an object, for each one that exists, then LIST and a list, which come separately.
"""
OF_KOPF = "rltrainingjobs"
"""The resource that kopf watches. After an interruption it reports what exists, and not what was deleted."""


@functools.lru_cache(maxsize=100_000)
def parse(text: str) -> Manifest:
    """The object in a JSON text. Callers do not change it."""
    manifest: Manifest = json.loads(text)
    return manifest


def find_watch(path: str, manifest: Manifest) -> str:
    """The resource of WATCHED whose watch delivers the object."""
    return "programs" if is_programs(manifest) else api_paths.resource_of(path)


@dataclass
class ApiServer:
    """The objects and the changes that the watches of the operator have not delivered yet."""

    objects: dict[str, str] = field(default_factory=dict)
    """Path -> JSON."""
    streams: dict[str, tuple[Change, ...]] = field(default_factory=lambda: dict.fromkeys(WATCHED, ()))
    """Resource -> changes, oldest first."""
    version: int = 1000
    uids: int = 0
    seconds: float = 0
    """The clock of the cluster."""

    def fork(self) -> ApiServer:
        return replace(self, objects=dict(self.objects), streams=dict(self.streams))

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def get(self, path: str) -> Manifest | None:
        text = self.objects.get(path)
        return parse(text) if text else None

    def select(self, resource: str) -> Iterator[tuple[str, Manifest]]:
        """Path and object for all objects of a resource."""
        for path, text in list(self.objects.items()):
            if api_paths.resource_of(path) == resource:
                yield path, parse(text)

    def create(self, collection: str, manifest: Manifest) -> Manifest:
        self.uids += 1
        path = f"{collection}/{manifest['metadata']['name']}"
        assert path not in self.objects
        resource = api_paths.resource_of(path)
        uid = f"{self.uids:08d}-{resource}"
        metadata = {**manifest["metadata"], "uid": uid, "generation": 1, "creationTimestamp": format_time(self.now)}
        return self._store(path, {**manifest, "metadata": metadata}, "ADDED")

    def update(self, path: str, manifest: Manifest) -> Manifest:
        """Store a changed object. Without a change, the resourceVersion remains, as in Kubernetes."""
        if parse(self.objects[path]) == manifest:
            return manifest
        return self._store(path, manifest, "MODIFIED")

    def remove(self, path: str) -> None:
        """Remove an object at once, as a deletion in the background does without finalizers."""
        self._store(path, parse(self.objects[path]), "DELETED")
        del self.objects[path]

    def mark_deleted(self, path: str) -> None:
        """Set the deletionTimestamp."""
        manifest = parse(self.objects[path])
        metadata = {"deletionTimestamp": format_time(self.now), **manifest["metadata"]}
        self.update(path, {**manifest, "metadata": metadata})

    def delete_in_foreground(self, path: str) -> None:
        """Delete an object after its dependents, as `kubectl delete --cascade=foreground` does."""
        self.mark_deleted(path)
        manifest = parse(self.objects[path])
        self.update(path, {**manifest, "metadata": {**manifest["metadata"], "finalizers": [FOREGROUND]}})

    def interrupt_watch(self, resource: str) -> None:
        """Drop the changes that a watch has not delivered. kopf or the reflector lists the objects again."""
        items = [text for path, text in self.objects.items() if find_watch(path, parse(text)) == resource]
        listed = f'{{"metadata": {{"resourceVersion": "{self.version}"}}, "items": [{", ".join(items)}]}}'
        reported = [("LISTED", text) for text in items] if resource == OF_KOPF else []
        self.streams[resource] = (*reported, ("LIST", listed))

    def take(self, resource: str) -> tuple[Change, ...]:
        """The changes that a watch delivers together, which are then no longer pending.

        The list that repairs kopf's watch comes after all that kopf has reported before.
        """
        changes = self.streams[resource]
        taken = changes
        if resource == OF_KOPF and len(changes) > 1:
            taken = tuple(each for each in changes if each[0] != "LIST")
        self.streams[resource] = tuple(each for each in changes if each not in taken)
        return taken

    def list_new(self, resource: str) -> list[Manifest]:
        """The objects whose creation the watch has not delivered."""
        return [parse(text) for change, text in self.streams[resource] if change == "ADDED"]

    def collect_garbage(self) -> bool:
        """Delete the objects whose owners are gone or wait for their dependents. Returns whether that changed anything.

        Pods get a deletionTimestamp: they terminate later.
        """
        before = self.version
        while True:
            version = self.version
            every = {path: parse(text) for path, text in self.objects.items()}
            alive = {each["metadata"]["uid"] for each in every.values() if not _waits_for_dependents(each)}
            for path, each in every.items():
                owners = [owner["uid"] for owner in each["metadata"].get("ownerReferences", [])]
                if not owners or alive.intersection(owners):
                    continue
                if api_paths.resource_of(path) == "pods":
                    self.mark_deleted(path)
                else:
                    self.remove(path)
            for path, each in every.items():
                if _waits_for_dependents(each) and not self.list_owned(each["metadata"]["uid"]):
                    self.remove(path)
            if self.version == version:
                return version != before

    def list_owned(self, uid: str) -> list[str]:
        """Paths of the objects that have this owner."""
        return [
            path
            for path, text in self.objects.items()
            if uid in text and uid in [owner["uid"] for owner in parse(text)["metadata"].get("ownerReferences", [])]
        ]

    def respond(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, str]:
        """Status and text of the response to a request of the operator."""
        if method == "GET":
            return self._read(path, query)
        if method == "POST":
            return self._create(path, query, body or {})
        if method == "PATCH":
            return self._patch(path, body) if isinstance(body, list) else self._apply(path, body or {})
        assert method == "DELETE"
        text = self.objects.get(path)
        if text is None:
            return _error(404, path)
        if (body or {})["preconditions"]["uid"] != parse(text)["metadata"]["uid"]:
            return _error(409, path, "the UID in the precondition does not match")
        self.remove(path)
        return 200, "{}"

    def _read(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        if path in self.objects:
            return 200, self.objects[path]
        if path.endswith("/namespaces/demo"):
            return 200, '{"metadata": {"labels": {}}}'
        if path.endswith(("/pods", "/rayclusters")):
            label, _, value = query.get("labelSelector", "").partition("=")
            resource = path.rpartition("/")[2]
            found = (each for _, each in self.select(resource))
            items = [each for each in found if not label or each["metadata"].get("labels", {}).get(label) == value]
            return 200, json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        return _error(404, path)

    def _create(self, path: str, query: dict[str, str], body: Manifest) -> tuple[int, str]:
        if "dryRun" in query or path.endswith("/events"):
            return 201, "{}"
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            return _error(409, name, "the object exists")
        return 201, json.dumps(self.create(path, body))

    def _apply(self, path: str, body: Manifest) -> tuple[int, str]:
        """Server-side apply by the only owner of the fields."""
        known = self.get(path)
        if known is None:
            return _error(409, path)
        wanted = body["metadata"]
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) not in (None, known["metadata"][key]):
                return _error(409, path, f"the {key} does not match")
        own = {key: wanted[key] for key in ("labels", "annotations", "ownerReferences") if key in wanted}
        return 200, json.dumps(self.update(path, {**body, "metadata": {**known["metadata"], **own}}))

    def _patch(self, path: str, operations: list[Manifest]) -> tuple[int, str]:
        main = path.removesuffix("/status")
        known = self.get(main)
        if known is None:
            return _error(404, main)
        if operations[0]["value"] != known["metadata"]["resourceVersion"]:
            return _error(409, main, "the resourceVersion does not match")
        return 200, json.dumps(self.update(main, apply_patch(known, operations)))

    def _store(self, path: str, manifest: Manifest, change: str) -> Manifest:
        self.version += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self.version)}
        stored = {**manifest, "metadata": metadata}
        self.objects[path] = text = json.dumps(stored)
        resource = find_watch(path, manifest)
        if resource in self.streams:
            earlier = dict(self._list_changes(resource, stored))
            kept = (each for each in self.streams[resource] if each not in earlier.items())
            kind = "ADDED" if "ADDED" in earlier and change == "MODIFIED" else change
            self.streams[resource] = (*kept, (kind, text))
        return stored

    def _list_changes(self, resource: str, manifest: Manifest) -> Iterator[Change]:
        """The undelivered changes of an object. A watch delivers all at once, so that only the latest counts."""
        for change, text in self.streams[resource]:
            if change != "LIST" and parse(text)["metadata"]["name"] == manifest["metadata"]["name"]:
                yield change, text


def _waits_for_dependents(manifest: Manifest) -> bool:
    return FOREGROUND in manifest["metadata"].get("finalizers", [])


def _error(status: int, path: str, message: str = "not found") -> tuple[int, str]:
    details: dict[str, Any] = {"name": path.rpartition("/")[2]}
    return status, json.dumps({"kind": "Status", "message": f"{path}: {message}", "details": details})
