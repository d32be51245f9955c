"""Keeps a store equal to the API server: one list in pages, then a watch that resumes where it ended."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_operator import metrics
from rlt_operator.cache.store import Name, Store, get_name

UNKNOWN_INTERVAL_S = 5.0
"""Interval between lists of a kind that the API server does not have, because its CRD may be installed later."""
MAX_BACKOFF_S = 30.0
"""Maximum delay after repeated errors."""
EXPIRED = 410
"""HTTP status of a watch whose resourceVersion is too old. The objects are then listed again."""
MAX_VERSION = 2**63

OnChange = Callable[[Name, Manifest | None], None]
"""Called after a change of a store with the object, or None if a list no longer contains it."""

log = logging.getLogger(__name__)


@dataclass
class Reflector:
    """One kind of object, of one namespace or of all."""

    kind: str
    """Plural name of the kind, for logs and metrics."""
    store: Store[Any]
    find_path: Callable[[], Awaitable[str]]
    """Returns the path of the list. Raises UnknownResourceError if the API server does not have the kind."""
    on_change: OnChange
    query: Mapping[str, str] = field(default_factory=dict)
    """Selectors of the list and the watch."""
    namespace: str | None = None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the store contains the first list."""
    error: ApiError | None = None
    """Why the latest request failed; None if it did not."""

    _version: str | None = field(default=None, init=False)
    """The resourceVersion that the store has reached; None before the first list and after an expired watch."""

    async def run(self, api: KubernetesApi) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            try:
                path = await self.find_path()
                if self._version is None:
                    await self._list(api, path)
                await self._watch(api, path)
                failures = 0
            except UnknownResourceError:
                self._clear()
                await asyncio.sleep(UNKNOWN_INTERVAL_S)
            except ApiError as error:
                if error.status == EXPIRED:
                    self._version = None
                    metrics.RELISTS.labels(kind=self.kind).inc()
                    continue
                failures = 1 if self.error is None else failures + 1
                self.error = error
                if error.rejected:  # the reconciliations report it
                    self.synced.set()
                log.warning("cannot list or watch %s: %s", self.kind, error)
                delay = min(MAX_BACKOFF_S, 2.0 ** (failures - 1))
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _list(self, api: KubernetesApi, path: str) -> None:
        """List all objects, and remove those from the store that no longer exist."""
        names: set[Name] = set()
        version = "0"
        async for page in api.list_pages(path, **self.query):
            items, version = page
            for item in items:
                names.add(get_name(item))
                if self.store.put(item):
                    self.on_change(get_name(item), item)
            await asyncio.sleep(0)  # let other tasks run between two pages
        for name in self.store.retain(names, int(version), self.namespace):
            self.on_change(name, None)
        self._version = version
        self.error = None
        self.store.reach(int(version), self.namespace)
        self.store.served = True
        self.synced.set()
        self._note_update()

    async def _watch(self, api: KubernetesApi, path: str) -> None:
        """Apply changes until the watch ends. The next watch resumes from there."""
        options = {**self.query, "resourceVersion": str(self._version), "allowWatchBookmarks": "true"}
        async for change, item in api.watch(path, **options):
            self.error = None
            self._version = str(item["metadata"]["resourceVersion"])
            self.store.reach(int(self._version), self.namespace)
            self._note_update()
            if change == "BOOKMARK":
                continue
            metrics.WATCH_EVENTS.labels(kind=self.kind).inc()
            if self.store.remove(item) if change == "DELETED" else self.store.put(item):
                self.on_change(get_name(item), item)

    def _note_update(self) -> None:
        metrics.CACHE_UPDATED.labels(kind=self.kind).set_to_current_time()
        metrics.CACHE_OBJECTS.labels(kind=self.kind).set(self.store.count())

    def _clear(self) -> None:
        """The API server does not have the kind: empty the store."""
        self._version = None
        self.error = None
        self.store.served = False
        for name in self.store.retain((), MAX_VERSION, self.namespace):
            self.on_change(name, None)
        self.synced.set()
