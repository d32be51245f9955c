"""The right of this process to write: it lasts until a time on the monotonic clock, which the Lease's renewals extend.

Every write to Kubernetes and Ray holds this right while it is sent. The clock runs while the process is stopped, so a
process that resumes after the expiry sends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Unpack

from rlt_core.kubernetes.client import ApiError, KubernetesApi, RequestOptions
from rlt_core.ray_http import Head, Request, Send
from rlt_operator import metrics

READS = frozenset({"GET", "HEAD"})


class NotLeaderError(ApiError):
    """The write was not sent, or its response was not awaited, because this process does not lead."""

    def __init__(self) -> None:
        super().__init__(0, "another replica may lead, so this one writes nothing")


class Leadership:
    """Whether this process leads, and until when."""

    def __init__(self) -> None:
        self.acquired = asyncio.Event()
        """Set when the process leads for the first time. It leads once at most."""
        self._until = -math.inf
        self._writes: set[asyncio.Timeout] = set()

    @property
    def valid(self) -> bool:
        """Whether the process leads now."""
        return asyncio.get_running_loop().time() < self._until

    @property
    def until(self) -> float:
        """End of the leadership in seconds on the loop's clock, which is the monotonic clock."""
        return self._until

    def extend(self, until: float) -> None:
        """Lead until this time. Writes in flight get the same time."""
        self._until = until
        self._reschedule_writes()
        self.acquired.set()
        metrics.LEADER.set(1)

    def end(self) -> None:
        """Lead no longer: writes in flight are cancelled."""
        self._until = -math.inf
        self._reschedule_writes()
        metrics.LEADER.set(0)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the right to write during one request. Raises NotLeaderError without it, or when it expires."""
        if not self.valid:
            raise NotLeaderError
        try:
            # When a stopped process resumes, the loop runs this timeout before the tasks that sockets have woken.
            async with asyncio.timeout_at(self._timeout) as write:
                self._writes.add(write)
                try:
                    yield
                finally:
                    self._writes.discard(write)
        except TimeoutError as error:
            if write.expired():
                raise NotLeaderError from error
            raise

    @property
    def _timeout(self) -> float | None:
        return None if self._until == math.inf else self._until

    def _reschedule_writes(self) -> None:
        for write in self._writes:
            if not write.expired():
                write.reschedule(self._timeout)


@dataclass
class FencedApi(KubernetesApi):
    """A connection whose writes need the leadership."""

    leadership: Leadership = field(kw_only=True)

    async def send(self, method: str, path: str, **options: Unpack[RequestOptions]) -> tuple[int, str]:
        """As KubernetesApi.send. Raises NotLeaderError."""
        if method in READS:
            return await super().send(method, path, **options)
        async with self.leadership.hold():
            return await super().send(method, path, **options)


def fence(send: Send, leadership: Leadership) -> Send:
    """Requests to Ray, of which POST, PUT and DELETE need the leadership: they raise NotLeaderError without it."""

    async def fenced(head: Head, request: Request) -> tuple[int, str]:
        if request.method in READS:
            return await send(head, request)
        async with leadership.hold():
            return await send(head, request)

    return fenced
