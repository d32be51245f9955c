"""The queue of reconciliations: one at a time for each job. A delay or a wake requeues.

The number of jobs in parallel has no limit: a reconciliation that waits for one head must not delay the other jobs. The
client of the API server limits the number of its requests. Namespaces take turns, for the start of reconciliations and
for the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rlt_core.kubernetes.fair_slots import FairSlots, requests_of
from rlt_operator import metrics

Key = tuple[str, str]
"""Namespace and name of a job."""

MIN_INTERVAL_S = 0.5
"""Minimum interval between two reconciliations of a job, however often it is woken."""
MAX_IMMEDIATE = 3
"""Number of reconciliations in succession that may follow at once, because one asked for it with `requeue_after` 0."""
MAX_BACKOFF_S = 30.0
"""Maximum delay after repeated errors."""


@dataclass(frozen=True)
class Result:
    """Result of a reconciliation."""

    requeue_after: float | None = None
    """Seconds until the next reconciliation; None if only a wake starts it."""
    gone: bool = False
    """Whether the job no longer exists."""


Reconcile = Callable[[Key], Awaitable[Result]]


class WorkQueue:
    """One task for each job. It holds no state that a crash could lose."""

    def __init__(self, reconcile: Reconcile, exists: Callable[[Key], bool] = lambda key: True) -> None:
        """`exists` returns whether a job exists: before `start`, only such jobs are kept."""
        self._reconcile = reconcile
        self._exists = exists
        self._started = False
        self._woken: dict[Key, asyncio.Event] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._turns = FairSlots(total=1, reserved=0, of_a_namespace=1)
        self._waiting: dict[Key, float] = {}
        """Since when a job waits for its reconciliation (time.monotonic)."""
        self._unfinished: dict[Key, float] = {}
        """Since when the running reconciliation of a job, or the latest one that failed, was waited for."""
        metrics.QUEUE_DEPTH.set_function(lambda: len(self._waiting) if self._started else 0)
        metrics.QUEUE_OLDEST.set_function(self._measure_oldest)

    def start(self) -> None:
        """Reconcile the jobs that were woken until now, and from now on."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._started = True
        for key in waiting:
            self.wake(key)

    def wake(self, key: Key) -> None:
        """Reconcile this job soon."""
        if not self._started:
            if self._exists(key):
                self._waiting[key] = time.monotonic()
            else:
                self._waiting.pop(key, None)
            return
        if key not in self._tasks:
            self._woken[key] = asyncio.Event()
            with requests_of(key[0]):
                self._tasks[key] = asyncio.create_task(self._run(key), name=f"{key[0]}/{key[1]}")
        self._set_woken(key)

    def wake_all(self) -> None:
        """Reconcile every job of the queue soon."""
        for key in self._woken:
            self._set_woken(key)

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _set_woken(self, key: Key) -> None:
        self._woken[key].set()
        self._waiting.setdefault(key, time.monotonic())

    def _measure_oldest(self) -> float:
        since = [*self._waiting.values(), *self._unfinished.values()] if self._started else []
        return time.monotonic() - min(since) if since else 0.0

    def _begin(self, key: Key) -> None:
        """Note that the reconciliation of a job starts."""
        now = time.monotonic()
        since = self._waiting.pop(key, None)
        if since is not None:
            metrics.QUEUE_SECONDS.observe(now - since)
        self._unfinished.setdefault(key, now if since is None else since)

    async def _wait_for_turn(self) -> None:
        """Start one reconciliation in each pass of the event loop: many woken jobs must not block it."""
        async with self._turns.hold():
            await asyncio.sleep(0)

    async def _run(self, key: Key) -> None:
        woken = self._woken[key]
        failures = 0
        immediate = 0
        while True:
            await self._wait_for_turn()
            woken.clear()
            started = time.monotonic()
            self._begin(key)
            try:
                result = await self._reconcile(key)
                failures = 0
                del self._unfinished[key]
            except Exception as error:
                failures += 1
                metrics.ERRORS.labels(error=type(error).__name__).inc()
                result = Result(requeue_after=min(MAX_BACKOFF_S, MIN_INTERVAL_S * 2**failures))
                logging.getLogger(__name__).exception("reconciliation of %s/%s failed", *key)
            if result.gone and not woken.is_set():
                del self._tasks[key], self._woken[key]
                return
            if result.requeue_after == 0 and immediate < MAX_IMMEDIATE:
                immediate += 1
                continue
            immediate = 0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), result.requeue_after)
            await asyncio.sleep(max(0.0, started + MIN_INTERVAL_S - time.monotonic()))
