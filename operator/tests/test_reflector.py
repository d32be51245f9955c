"""The pace of a reflector: lists and watches that fail, expire or end early, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.reflector import EXPIRED, MAX_BACKOFF_S, MIN_BACKOFF_S, UNKNOWN_INTERVAL_S, WATCH_S, Reflector
from rlt_operator.cache.store import Store, get_name

POD: Manifest = {"metadata": {"namespace": "demo", "name": "a", "resourceVersion": "1"}}


class Server:
    """Answers each watch with the next of `watches`: how long it takes, and how it ends."""

    def __init__(self, *watches: tuple[float, ApiError | None]) -> None:
        self.watches = list(watches)
        self.seconds = 0.0
        self.lists = 0
        self.timeouts: list[int] = []
        self.delays: list[float] = []
        self.on_end: Callable[[], None] = lambda: None

    async def list_pages(self, path: str, **query: str) -> AsyncIterator[tuple[list[Manifest], str]]:
        self.lists += 1
        yield [POD], "1"

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Manifest]]:
        self.timeouts.append(int(query["timeoutSeconds"]))
        if not self.watches:
            raise asyncio.CancelledError
        seconds, error = self.watches.pop(0)
        self.seconds += seconds
        if error:
            raise error
        for _ in ():
            yield "", POD

    async def sleep(self, seconds: float) -> None:
        self.on_end()
        self.delays.append(seconds)
        self.seconds += seconds


def make(server: Server) -> Reflector:
    async def find_path() -> str:
        return "/pods"

    store: Store[str] = Store(lambda item: "pod", get_name)
    return Reflector(
        "pods", store, find_path, lambda name, item: None, sleep=server.sleep, clock=lambda: server.seconds
    )


async def run(server: Server) -> Reflector:
    """Run the reflector until the server has no more answers."""
    reflector = make(server)
    with pytest.raises(asyncio.CancelledError):
        await reflector.run(cast(KubernetesApi, server))
    return reflector


EXPIRES = ApiError(EXPIRED, "too old resource version")


@pytest.mark.parametrize("watch", [(0.0, EXPIRES), (0.0, None), (0.0, ApiError(500, "no"))])
async def test_the_delay_doubles_with_jitter(watch: tuple[float, ApiError | None]) -> None:
    server = Server(*[watch] * 12)
    await run(server)
    assert len(server.delays) == 12
    for number, delay in enumerate(server.delays):
        longest = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**number)
        assert longest / 2 <= delay <= longest
    assert len({delay / min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2**n) for n, delay in enumerate(server.delays)}) > 1


async def test_a_watch_that_ends_in_time_is_resumed_at_once_and_ends_the_backoff() -> None:
    server = Server((0.0, None), (0.0, None), (200.0, None), (0.0, None))
    await run(server)
    assert len(server.delays) == 3
    assert server.delays[2] <= MIN_BACKOFF_S
    assert server.lists == 1


async def test_an_expired_watch_is_listed_again_after_a_delay_however_long_it_was() -> None:
    server = Server((200.0, EXPIRES), (200.0, EXPIRES))
    await run(server)
    assert server.lists == 3
    assert len(server.delays) == 2
    assert all(MIN_BACKOFF_S / 2 <= delay <= MIN_BACKOFF_S for delay in server.delays)


async def test_the_duration_of_watches_is_random() -> None:
    server = Server(*[(200.0, None)] * 50)
    await run(server)
    assert all(WATCH_S[0] <= seconds <= WATCH_S[1] for seconds in server.timeouts)
    assert len(set(server.timeouts)) > 10


async def test_a_kind_that_is_removed_while_it_is_watched_is_unknown() -> None:
    server = Server((20.0, ApiError(404, "the server could not find the requested resource")))
    seen: list[tuple[bool, int, ApiError | None]] = []
    reflector = make(server)
    server.on_end = lambda: seen.append((reflector.store.served, reflector.store.count(), reflector.error))
    with pytest.raises(asyncio.CancelledError):
        await reflector.run(cast(KubernetesApi, server))
    assert seen == [(False, 0, None)], "jobs without this kind are reconciled"
    assert server.delays == [UNKNOWN_INTERVAL_S]
    assert reflector.store.served
    assert server.lists == 2
