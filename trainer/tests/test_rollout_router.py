"""Requests go to the least loaded engine, to one that has their prefix, and away from one that is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.router import PREFIX_SLACK, Engine, Foreground, Router

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=4, stop_token_ids=())


class Held:
    """An engine whose requests end when the test ends them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        """The first token of each request, by call of `submit`."""
        self.aborted: list[int] = []
        self._requests: dict[int, Request] = {}
        self._ended: asyncio.Queue[list[tuple[int, Response | EngineError]] | Exception] = asyncio.Queue()

    async def submit(self, requests: Sequence[Request]) -> None:
        self.batches.append([request.prompt[0] for request in requests])
        self._requests |= {request.number: request for request in requests}

    async def ended(self) -> list[tuple[int, Response | EngineError]]:
        result = await self._ended.get()
        if isinstance(result, Exception):
            raise result
        return result

    async def abort(self, numbers: Sequence[int]) -> None:
        self.aborted += numbers
        self._ended.put_nowait([(number, Response((), (), finish_reason="abort")) for number in numbers])

    def end(self, token: int, error: EngineError | None = None) -> None:
        """End the first request whose prompt starts with `token`. Its response is this token."""
        number = next(number for number, each in self._requests.items() if each.prompt[0] == token)
        del self._requests[number]
        routes = np.ones((1, 2, 2), dtype=np.uint8)
        self._ended.put_nowait([(number, error or Response((token,), (-1.0,), routes=routes))])

    def die(self) -> None:
        self._ended.put_nowait(RuntimeError("the process of a RolloutWorker died"))

    @property
    def taken(self) -> list[int]:
        return [token for batch in self.batches for token in batch]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine."""

    def run_test() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    run_test.__name__ = test.__name__
    return run_test


def build_router(*engines: Held, max_requests: int = 100) -> tuple[Router, list[Engine]]:
    lost: list[Engine] = []
    router = Router(on_loss=lambda engine, _: lost.append(engine))
    for engine in engines:
        router.add(engine, max_requests=max_requests)
    return router, lost


def start(router: Router, *tokens: int) -> list[asyncio.Task[Response]]:
    """Start a request for each token, which is its prompt."""
    return [asyncio.create_task(router.sample([token], seed=token, sampling=SAMPLING)) for token in tokens]


async def settle() -> None:
    """Run everything that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


@run
async def test_requests_that_arrive_together_are_sent_together_in_order() -> None:
    first = Held()
    second = Held()
    router, _ = build_router(first, second)
    start(router, *range(6))
    await settle()
    assert (first.batches, second.batches) == ([[0, 2, 4]], [[1, 3, 5]])


@run
async def test_responses_arrive_as_they_end() -> None:
    engine = Held()
    router, _ = build_router(engine)
    slow, fast = start(router, 1, 2)
    await settle()
    engine.end(2)
    assert list((await fast).token_ids) == [2]
    assert not slow.done()


@run
async def test_waiting_requests_go_to_the_first_engine_that_has_room() -> None:
    slow = Held()
    fast = Held()
    router, _ = build_router(slow, fast, max_requests=4)
    start(router, *range(30))
    await settle()
    assert len(slow.taken) == len(fast.taken) == 5  # 1.25 times 4
    assert router.count_requests() == {"running": 10, "waiting": 20}
    while len(slow.taken) + len(fast.taken) < 30:
        fast.end(fast.taken[len(fast.taken) - 5])
        await settle()
    assert len(slow.taken) == 5


@run
async def test_the_requests_of_a_prompt_prefer_the_engine_that_has_it() -> None:
    first = Held()
    second = Held()
    router, _ = build_router(first, second)
    prompt = list(range(40))
    turn = [*prompt, *range(50, 70)]
    for tokens in (prompt, prompt, prompt, turn):
        asyncio.create_task(router.sample(tokens, seed=0, sampling=SAMPLING))  # noqa: RUF006 # ends with the loop
    await settle()
    assert (len(first.taken), len(second.taken)) == (4, 0)
    start(router, *[0] * 2)  # another prompt
    await settle()
    assert len(second.taken) == 2
    for _ in range(3 * PREFIX_SLACK):
        asyncio.create_task(router.sample(prompt, seed=0, sampling=SAMPLING))  # noqa: RUF006
    await settle()
    assert abs(len(first.taken) - len(second.taken)) <= PREFIX_SLACK  # both have it now


@run
async def test_validation_goes_before_requests_in_the_background() -> None:
    engine = Held()
    router, _ = build_router(engine, max_requests=1)
    start(router, 1, 2, 3)
    await settle()
    urgent = asyncio.create_task(Foreground(router).sample([9], seed=0, sampling=SAMPLING))
    await settle()
    engine.end(1)
    await settle()
    assert engine.taken == [1, 9]
    engine.end(9)
    assert list((await urgent).token_ids) == [9]


@run
async def test_only_training_receives_the_experts_of_tokens() -> None:
    engine = Held()
    router, _ = build_router(engine)
    (trained,) = start(router, 1)
    validated = asyncio.create_task(Foreground(router).sample([2], seed=0, sampling=SAMPLING))
    await settle()
    engine.end(1)
    engine.end(2)
    assert (await trained).routes is not None
    assert (await validated).routes is None


@run
async def test_the_requests_of_a_lost_engine_go_to_another() -> None:
    first = Held()
    second = Held()
    router, lost = build_router(first, second)
    tasks = start(router, *range(4))
    await settle()
    first.die()
    await settle()
    assert lost == [first]
    assert second.batches == [[1, 3], [0, 2]]
    for token in range(4):
        second.end(token)
    assert [list((await task).token_ids) for task in tasks] == [[0], [1], [2], [3]]


@run
async def test_requests_wait_for_an_engine_if_all_are_lost() -> None:
    engine = Held()
    restarted = Held()
    router, lost = build_router(engine)
    (task,) = start(router, 7)
    await settle()
    engine.die()
    await settle()
    assert (lost, task.done()) == ([engine], False)
    router.add(restarted, max_requests=1)
    await settle()
    restarted.end(7)
    assert list((await task).token_ids) == [7]


@run
async def test_a_cancelled_request_is_aborted_or_never_sent() -> None:
    engine = Held()
    router, _ = build_router(engine, max_requests=1)
    sent, waiting = start(router, 1, 2)
    await settle()
    sent.cancel()
    waiting.cancel()
    await settle()
    assert engine.aborted == [0]
    assert engine.taken == [1]
    assert router.load() == [0]


@run
async def test_an_error_of_a_request_is_raised_for_it_alone() -> None:
    engine = Held()
    router, _ = build_router(engine)
    bad, good = start(router, 1, 2)
    await settle()
    engine.end(1, EngineError("too long"))
    engine.end(2)
    with pytest.raises(EngineError, match="too long"):
        await bad
    assert list((await good).token_ids) == [2]
