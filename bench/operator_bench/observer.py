"""What a client of the API server sees, and when: one watch that records the first time of each object state."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from pathlib import Path

from rlt_core.job import Manifest
from rlt_core.kubernetes import client
from rlt_core.kubernetes.client import KubernetesApi

DEADLINE_S = 2400.0
"""For 3,000 jobs on two cores."""


class Observer:
    """The objects of one kind in a namespace. `reduce` returns the state of an object."""

    def __init__(self, reduce: Callable[[Manifest], Hashable]) -> None:
        self._reduce = reduce
        self._changed = asyncio.Event()
        self.states: dict[str, Hashable] = {}
        """Name -> latest state."""
        self.times: dict[str, dict[Hashable, float]] = {}
        """Name -> state -> when it was seen first (time.time)."""
        self.changes: Counter[str] = Counter()
        """Name -> changes seen, the creation included."""
        self._changes_until: dict[tuple[str, Hashable], int] = {}

    async def run(self, api: KubernetesApi, path: str) -> None:
        """List and watch until cancelled."""
        items, version = await api.list_with_version(path)
        for item in items:
            self._see(item)
        self._changed.set()
        while True:
            async for change, item in api.watch(path, resourceVersion=version, allowWatchBookmarks="true"):
                version = item["metadata"]["resourceVersion"]
                if change == "DELETED":
                    self.states.pop(item["metadata"]["name"], None)
                elif change != "BOOKMARK":
                    self._see(item)
                self._changed.set()

    def _see(self, item: Manifest) -> None:
        name = item["metadata"]["name"]
        state = self._reduce(item)
        self.states[name] = state
        self.changes[name] += 1
        self.times.setdefault(name, {}).setdefault(state, time.time())
        self._changes_until.setdefault((name, state), self.changes[name])

    def changes_until(self, state: Hashable) -> list[int]:
        """For each object: its changes until it was in that state first, the creation included."""
        return [changes for (_, reached), changes in self._changes_until.items() if reached == state]

    def count(self, state: Hashable) -> int:
        """Number of objects in that state."""
        return sum(each == state for each in self.states.values())

    async def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done`, which is asked after each change. Raises TimeoutError."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise TimeoutError(f"not within {DEADLINE_S:.0f} s: {what}; {Counter(self.states.values())}") from error


@asynccontextmanager
async def observing(api: KubernetesApi, path: str, reduce: Callable[[Manifest], Hashable]) -> AsyncIterator[Observer]:
    """Observe the objects below `path`."""
    observer = Observer(reduce)
    task = asyncio.create_task(observer.run(api, path))
    try:
        yield observer
    finally:
        task.cancel()


@asynccontextmanager
async def connecting(kubeconfig: Path) -> AsyncIterator[KubernetesApi]:
    """A connection of a cluster administrator."""
    api, _ = await client.connect_as_user(kubeconfig=str(kubeconfig), context=None)
    try:
        yield api
    finally:
        await api.close()


def get_phase(manifest: Manifest) -> Hashable:
    """Phase of a job."""
    phase: str | None = manifest.get("status", {}).get("phase")
    return phase
