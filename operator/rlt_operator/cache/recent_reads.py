"""Reads of objects that have no watch: many jobs read them, and they rarely change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rlt_core.kubernetes.fair_slots import requests_of

MAX_AGE_S = 5.0
"""A read is repeated after this time."""

Read = Callable[[str], Awaitable[Any]]


class RecentReads:
    """The results of reads in the last MAX_AGE_S. Callers at the same time share one request."""

    def __init__(self) -> None:
        self._reads: dict[str, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, path: str, read: Read) -> Any:
        """The result of `read(path)`. Raises its error, which is not kept."""
        now = time.monotonic()
        self._reads = {known: each for known, each in self._reads.items() if now - each[0] < MAX_AGE_S}
        if path not in self._reads:
            with requests_of(None):  # jobs of other namespaces may wait for the same read
                self._reads[path] = (now, asyncio.create_task(_call(read, path)))
        _, task = self._reads[path]
        try:
            return await asyncio.shield(task)
        except Exception:
            if self._reads.get(path, (0.0, None))[1] is task:
                self._reads.pop(path, None)
            raise

    def forget(self, path: str, *, older_than: float) -> None:
        """Repeat the next read, unless the latest one started within `older_than` seconds."""
        started, _ = self._reads.get(path, (time.monotonic(), None))
        if time.monotonic() - started > older_than:
            self._reads.pop(path, None)


async def _call(read: Read, path: str) -> Any:
    return await read(path)
