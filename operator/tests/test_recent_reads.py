"""Reads that many jobs share."""

from __future__ import annotations

import asyncio

import pytest

from rlt_core.kubernetes.client import ApiError
from rlt_operator.cache.recent_reads import MAX_AGE_S, RecentReads


class Source:
    """Counts its reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: ApiError | None = None

    async def read(self, path: str) -> str:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return f"{path} {self.reads}"


async def test_callers_at_the_same_time_share_a_read() -> None:
    source = Source()
    recent = RecentReads()
    assert await asyncio.gather(*(recent.get("/a", source.read) for _ in range(3))) == ["/a 1"] * 3
    assert await recent.get("/b", source.read) == "/b 2"


async def test_a_read_is_repeated_after_its_maximum_age(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    recent = RecentReads()
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for now[0], reads in ((0.0, 1), (MAX_AGE_S - 0.1, 1), (MAX_AGE_S, 2)):
        await recent.get("/a", source.read)
        assert source.reads == reads


async def test_an_error_is_not_kept() -> None:
    source = Source()
    recent = RecentReads()
    source.error = ApiError(500, "etcd")
    with pytest.raises(ApiError):
        await recent.get("/a", source.read)
    source.error = None
    assert await recent.get("/a", source.read) == "/a 2"


async def test_a_cancelled_caller_does_not_end_the_read_of_another() -> None:
    source = Source()
    recent = RecentReads()
    first, second = (asyncio.create_task(recent.get("/a", source.read)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "/a 1"


async def test_a_forgotten_read_is_repeated_if_it_is_older_than_required(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    recent = RecentReads()
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    recent.forget("/a", older_than=1.0)
    for now[0], reads in ((0.0, 1), (1.0, 1), (1.5, 2)):
        recent.forget("/a", older_than=1.0)
        assert await recent.get("/a", source.read) == f"/a {reads}"
