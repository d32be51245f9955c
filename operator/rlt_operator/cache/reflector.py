"""Keeps a store equal to the API server: one list in pages, then a watch that resumes where it ended."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.cache.store import Name, Store, get_name

UNKNOWN_INTERVAL_S = 5.0
"""Interval between lists of a kind that the API server does not have, because its CRD may be installed later."""
MIN_BACKOFF_S = 0.8
"""Maximum delay after the first error, expired watch or watch that ends early (client-go: 0.8 to 30 s)."""
MAX_BACKOFF_S = 30.0
"""Maximum delay after repeated ones."""
MIN_WATCH_S = 10.0
"""A watch that ends earlier counts as one that failed."""
WATCH_S = (150, 300)
"""Duration of a watch, at random: the watches of a process do not end at the same time."""
NOT_FOUND = 404
"""HTTP status of a kind that the API server does not have, or no longer has."""
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

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    _version: str | None = field(default=None, init=False)
    """The resourceVersion that the store has reached; None before the first list and after an expired watch."""

    async def run(self, api: KubernetesApi) -> None:
        """List and watch until cancelled."""
        failures = 0
        while True:
            started = self.clock()
            failed = False
            try:
                path = await self.find_path()
                if self._version is None:
                    await self._list(api, path)
                await self._watch(api, path)
            except ApiError as error:
                if error.status == NOT_FOUND:
                    self._clear()
                    await self.sleep(UNKNOWN_INTERVAL_S)
                    continue
                failed = True
                if error.status == EXPIRED:
                    self._version = None
                    metrics.RELISTS.labels(kind=self.kind).inc()
                else:
                    self._note_error(error)
            failures = failures + 1 if self.clock() - started < MIN_WATCH_S else int(failed)
            if failures:
                delay = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2.0 ** min(failures - 1, 10))
                await self.sleep(delay * random.uniform(0.5, 1.0))

    def _note_error(self, error: ApiError) -> None:
        self.error = error
        if error.rejected:  # the reconciliations report it
            self.synced.set()
        log.warning("cannot list or watch %s: %s", self.kind, error)

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
        options = {
            **self.query,
            "resourceVersion": str(self._version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_S)),
        }
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
