"""Looks at jobs: one at a time for each job, several jobs at once, again after a while, and soon when woken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Key = tuple[str, str]
"""Namespace and name."""

MIN_INTERVAL_S = 0.5
"""Between two looks at one job, however often it is woken."""
MAX_BACKOFF_S = 30.0
"""Between looks that fail one after another."""


@dataclass(frozen=True)
class Result:
    """What came of a look."""

    requeue_after: float | None = None
    """Seconds to the next look; None if only a wake-up is worth one."""
    gone: bool = False
    """The job does not exist any more."""


Look = Callable[[Key], Awaitable[Result]]


class WorkQueue:
    """The looks of all jobs. It holds nothing that would be missed after a crash."""

    def __init__(self, look: Look, *, on_error: Callable[[], None], at_once: int) -> None:
        self._look = look
        self._on_error = on_error
        self._places = asyncio.Semaphore(at_once)
        self._woken: dict[Key, asyncio.Event] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def wake(self, key: Key) -> None:
        """Look at this job soon."""
        if key not in self._tasks:
            self._woken[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(self._follow(key), name=f"{key[0]}/{key[1]}")
        self._woken[key].set()

    def wake_if_new(self, key: Key) -> None:
        """Look at this job soon unless it is being followed already."""
        if key not in self._tasks:
            self.wake(key)

    def wake_all(self) -> None:
        """Look at every job that is being followed soon."""
        for woken in self._woken.values():
            woken.set()

    async def close(self) -> None:
        """End all looks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, key: Key) -> None:
        woken, failures = self._woken[key], 0
        while True:
            woken.clear()
            started = time.monotonic()
            async with self._places:
                try:
                    outcome, failures = await self._look(key), 0
                except Exception:
                    failures += 1
                    self._on_error()
                    outcome = Result(requeue_after=min(MAX_BACKOFF_S, MIN_INTERVAL_S * 2**failures))
                    logging.getLogger(__name__).exception("a look at %s/%s failed", *key)
            if outcome.gone and not woken.is_set():
                del self._tasks[key], self._woken[key]
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), outcome.requeue_after)
            await asyncio.sleep(max(0.0, started + MIN_INTERVAL_S - time.monotonic()))
