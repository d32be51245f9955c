"""Streams of a loop in a thread: plain and asynchronous iteration, errors, and the end of an iteration."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import pytest

from rlt.event_loop import BackgroundLoop, Stream


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


class Numbers:
    """Counts to 3, and then raises an error if `error`."""

    def __init__(self, error: bool = False) -> None:
        self.closed = 0
        self.error = error

    async def __call__(self) -> AsyncGenerator[int]:
        try:
            for number in (1, 2, 3):
                yield number
            if self.error:
                raise ValueError("no more")
        finally:
            self.closed += 1


def test_each_iteration_is_new(loop: BackgroundLoop) -> None:
    stream = Stream(loop, numbers := Numbers())
    assert [*stream, *stream] == [1, 2, 3, 1, 2, 3]
    assert numbers.closed == 2


async def test_an_event_loop_of_the_caller_can_iterate(loop: BackgroundLoop) -> None:
    assert [number async for number in Stream(loop, Numbers())] == [1, 2, 3]
    assert list(Stream(loop, Numbers())) == [1, 2, 3]  # as in a notebook, whose loop runs


def test_a_break_closes_the_source(loop: BackgroundLoop) -> None:
    numbers = Numbers()
    iterator = iter(Stream(loop, numbers))
    assert next(iterator) == 1
    del iterator
    assert numbers.closed == 1


def test_an_error_reaches_the_caller(loop: BackgroundLoop) -> None:
    iterator = iter(Stream(loop, Numbers(error=True)))
    assert [next(iterator) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="no more"):
        next(iterator)
