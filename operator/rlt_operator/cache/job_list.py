"""Finds what kopf does not report of the jobs: those that were deleted while its watch was interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.cache.job_store import JobStore
from rlt_operator.cache.reflector import OnChange, Reflector
from rlt_operator.cache.store import Name, get_name, get_version

INTERVAL_S = 120.0
"""Interval between two lists. A list takes one request for METADATA_PAGE_SIZE jobs."""
RECHECK_S = 10.0
"""The same while kopf has not reported all that was listed."""
RELIST_DELAY_S = 1.0
"""Delay of the list that follows a list of kopf: kopf reports each of its jobs."""
LATE_S = 30.0
"""A job that kopf has not reported in this time is read. It takes seconds to report some thousand jobs."""

Select = Callable[[str | None, bool], None]
"""Lets kopf watch the jobs of a namespace, or of all with None, or no longer."""

log = logging.getLogger(__name__)


class JobList(Reflector):
    """The jobs of a namespace, or of all: kopf reports events, and lists of metadata show what they lack.

    Each list removes the jobs from the store that no longer exist. The store is complete when it contains every listed
    job. kopf watches only namespaces whose jobs can be listed, because it ends when a request is rejected.
    """

    def __init__(self, store: JobStore, on_change: OnChange, namespace: str | None, select: Select) -> None:
        async def find_path() -> str:
            return api_paths.jobs(namespace)

        super().__init__("rltrainingjobs", store, find_path, on_change, namespace=namespace)
        self._select = select
        self._due = asyncio.Event()
        """Set when kopf has listed the jobs again: it had lost its watch."""
        self._late: dict[Name, tuple[int, float]] = {}
        """The listed jobs that kopf has not reported: resourceVersion, and since when (time.monotonic)."""
        self._schema_changed = False

    async def run(self, api: KubernetesApi) -> None:
        """List until cancelled."""
        try:
            await super().run(api)
        finally:
            self._select(self.namespace, False)

    def read_again(self) -> None:
        """Read all jobs. A new schema changes what the API server returns for them, but not their resourceVersions."""
        self._schema_changed = True
        self._due.set()

    def receive(self, change: str | None, job: Manifest) -> None:
        """Store an event of kopf: ADDED, MODIFIED, DELETED, or None for a job that it has listed."""
        name = get_name(job)
        metrics.WATCH_EVENTS.labels(kind=self.kind).inc()
        if change is None and self.store.get(name) is not None:
            self._due.set()
        if change == "DELETED":
            self.store.reach(get_version(job), name[0])
        changed = self.store.remove(job) if change == "DELETED" else self.store.put(job)
        self._note_update()
        if changed:
            self.on_change(name, job)
        self._note_reported(name, get_version(job))

    def _note_reported(self, name: Name, version: int) -> None:
        late = self._late.get(name)
        if late and late[0] <= version:
            del self._late[name]
            if not self._late:
                self.synced.set()

    async def _list(self, api: KubernetesApi, path: str) -> None:
        """List the metadata of all jobs, and remove those from the store that no longer exist."""
        if self._schema_changed:
            await self._read_all(api, path)
        listed: dict[Name, int] = {}
        version = "0"
        async for page in api.list_metadata(path):
            items, version = page
            listed |= {get_name(item): get_version(item) for item in items}
            await asyncio.sleep(0)  # let other tasks run between two pages
        for name in self.store.retain(listed, int(version), self.namespace):
            log.info("kopf has not reported the deletion of %s/%s", *name)
            self.on_change(name, None)
        self.store.reach(int(version), self.namespace)
        self.store.served = True
        self.error = None
        self._select(self.namespace, True)
        now = time.monotonic()
        self._late = {
            name: (listed_version, self._late.get(name, (0, now))[1])
            for name, listed_version in listed.items()
            if (self.store.version_of(name) or 0) < listed_version
        }
        await self._read_late(api)
        if not self._late:
            self.synced.set()
        self._note_update()

    async def _read_all(self, api: KubernetesApi, path: str) -> None:
        """Read and reconcile all jobs after a change of their schema.

        The store may have the new form of a job already, from the response to a write that followed the old one.
        """
        try:
            self._schema_changed = False
            async for jobs, _ in api.list_pages(path):
                for job in jobs:
                    self.store.put(job, again=True)
                    self.on_change(get_name(job), job)
                await asyncio.sleep(0)  # let other tasks run between two pages
        except Exception:
            self._schema_changed = True
            raise

    async def _read_late(self, api: KubernetesApi) -> None:
        """Read the jobs that kopf should have reported long ago."""
        for name, (_, since) in list(self._late.items()):
            if time.monotonic() - since < LATE_S:
                continue
            log.warning("kopf has not reported %s/%s for %.0f s", *name, LATE_S)
            job = await api.get(api_paths.job(*name))
            if job and self.store.put(job):
                self.on_change(name, job)
            self._late.pop(name, None)

    async def _watch(self, api: KubernetesApi, path: str) -> None:
        """Wait until the next list. kopf watches."""
        if not await self._wait(RECHECK_S) and not self._late:
            await self._wait(INTERVAL_S)
        if self._due.is_set():
            metrics.RELISTS.labels(kind=self.kind).inc()
            await self.sleep(RELIST_DELAY_S)
            self._due.clear()

    async def _wait(self, seconds: float) -> bool:
        """Wait until a list is due, or this time. Returns whether one is."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._due.wait(), seconds)
        return self._due.is_set()

    def _note_error(self, error: ApiError) -> None:
        super()._note_error(error)
        if error.rejected:
            self._select(self.namespace, False)

    def _clear(self) -> None:
        self._select(self.namespace, False)
        self._late.clear()
        super()._clear()
