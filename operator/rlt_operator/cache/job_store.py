"""The RLTrainingJobs of the cache, within bounds for each namespace: a large one is kept by reference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache.store import Entry, Name, Store, get_name, get_version

MAX_JOB_CHARACTERS = 256 * 1024
"""A job with more characters is kept by reference."""
MAX_NAMESPACE_CHARACTERS = 64 * 1024 * 1024
"""Characters of a namespace's jobs. Those that change beyond it are kept by reference: 5,000 jobs of 12 KB fit."""
REFERENCE = "byReference"
"""Key in the kept metadata of a large job."""
METADATA = ("namespace", "name", "uid", "resourceVersion", "generation")


class JobStore(Store[str]):
    """Jobs as JSON without managedFields, which takes a fifth of the parsed object's memory."""

    def __init__(self) -> None:
        super().__init__(self._reduce, _get_uid)
        self.on_removed: Callable[[Manifest], object] = lambda job: None
        """Called with a job that no longer exists, in the last known state: of a large one, possibly the metadata."""
        self._characters: Counter[str] = Counter()
        """By namespace."""

    def put(self, manifest: Manifest, *, again: bool = False) -> bool:
        """Store a job. Returns whether it has changed."""
        name = get_name(manifest)
        is_newer = (self.version_of(name) or 0) < get_version(manifest)
        if is_newer and self.get_index(name) not in (None, _get_uid(manifest)):
            self._remove(name)  # the deletion of an earlier job of this name was not reported
        changed = super().put(manifest, again=again)
        if changed:
            namespace, _ = name
            self._characters[namespace] += len(self.get(name) or "")
        return changed

    def remove(self, manifest: Manifest) -> bool:
        """As in Store. The manifest has the last state, also of a large job, and of one that was deleted at once."""
        removed = super().remove(manifest)
        self.on_removed(manifest)
        return removed

    def get_manifest(self, name: Name) -> Manifest | None:
        """The job, or of a large one the metadata; None if the store lacks it."""
        text = self.get(name)
        return json.loads(text) if text else None

    async def read(self, api: KubernetesApi, name: Name) -> Manifest | None:
        """The job; None if it does not exist. A large one is read from the API server. Raises ApiError."""
        manifest = self.get_manifest(name)
        if manifest is None or REFERENCE not in manifest:
            return manifest
        return await api.get(api_paths.job(*name))

    def count_characters(self, namespace: str) -> int:
        """The characters of a namespace's jobs."""
        return self._characters[namespace]

    def _reduce(self, manifest: Manifest) -> str:
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
        text = json.dumps({**manifest, "metadata": metadata})
        others = self._characters[metadata["namespace"]] - len(self.get(get_name(manifest)) or "")
        if len(text) <= MAX_JOB_CHARACTERS and others + len(text) <= MAX_NAMESPACE_CHARACTERS:
            return text
        return json.dumps({"metadata": {key: metadata[key] for key in METADATA}, REFERENCE: True})

    def _remove(self, name: Name) -> bool:
        last = self.get_manifest(name)
        if last is not None:
            self.on_removed(last)
        return super()._remove(name)

    def _drop(self, name: Name) -> Entry[str] | None:
        entry = super()._drop(name)
        if entry:
            namespace, _ = name
            self._characters[namespace] -= len(entry.value)
            if not self._characters[namespace]:
                del self._characters[namespace]
        return entry


def _get_uid(manifest: Manifest) -> str:
    uid: str = manifest["metadata"]["uid"]
    return uid
