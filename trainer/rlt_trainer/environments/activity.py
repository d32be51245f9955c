"""The requests of an episode in progress, and limits of the time without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Activity:
    """Requests and limits of one episode. A limit within another one suspends the outer one."""

    def __init__(self) -> None:
        self._requests = 0
        self._limits: list[tuple[asyncio.Timeout, float]] = []

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request is in progress."""
        self._requests += 1
        self._arm()
        try:
            yield
        finally:
            self._requests -= 1
            self._arm()

    @asynccontextmanager
    async def limit(self, timeout_s: float) -> AsyncIterator[None]:
        """Raise TimeoutError after `timeout_s` without a request."""
        async with asyncio.timeout(None) as timeout:
            limit = (timeout, timeout_s)
            self._limits.append(limit)
            self._arm()
            try:
                yield
            finally:
                self._limits.remove(limit)
                self._arm()

    def _arm(self) -> None:
        now = asyncio.get_running_loop().time()
        for number, (timeout, timeout_s) in enumerate(self._limits, 1):
            if not timeout.expired():
                is_suspended = self._requests > 0 or number < len(self._limits)
                timeout.reschedule(None if is_suspended else now + timeout_s)
