"""Responses are scored while others are generated."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlt_api.blocks.data import Data
from rlt_api.blocks.rewards import Reward
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import RolloutRequest, RolloutSampler
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.router import Router

TOKENIZER = build_byte_tokenizer()
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=4, stop_token_ids=())
REQUESTS = [RolloutRequest(Prompt(number, (number,), "?", "7", "7", ""), number, SAMPLING) for number in range(3)]


class HeldEngine:
    """An engine whose responses end when the test releases them."""

    def __init__(self) -> None:
        self._submitted: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._ended: asyncio.Queue[tuple[int, Response | EngineError]] = asyncio.Queue()

    async def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._submitted[request.number].set()

    async def ended(self) -> list[tuple[int, Response | EngineError]]:
        return [await self._ended.get()]

    async def abort(self, numbers: Sequence[int]) -> None: ...

    async def release(self, number: int, result: str | EngineError) -> None:
        await self._submitted[number].wait()
        tokens = tuple(TOKENIZER.encode(result)) if isinstance(result, str) else ()
        response = Response(tokens, (-1.0,) * len(tokens)) if isinstance(result, str) else result
        await self._ended.put((number, response))


class Run:
    """A sampler with one engine."""

    def __init__(self, scorer: Scorer) -> None:
        self.loop = EventLoopThread("engines")
        self.engine, self.router = self.loop.submit(self._open()).result()
        engines = cast(Any, SimpleNamespace(loop=self.loop, router=self.router))
        self.sampler = RolloutSampler(None, Data(), engines=engines, tokenizer=TOKENIZER, scorer=scorer)

    async def _open(self) -> tuple[HeldEngine, Router]:
        engine, router = HeldEngine(), Router(lambda *_: None)
        router.add(engine, max_requests=8)
        return engine, router

    def release(self, number: int, result: str | EngineError) -> None:
        self.loop.submit(self.engine.release(number, result)).result()

    def close(self) -> None:
        self.loop.submit(self.router.close()).result()
        self.loop.close()


@pytest.fixture
def start() -> Iterator[Callable[[list[Reward]], Run]]:
    opened: list[tuple[Run, Scorer]] = []

    def open_run(rewards: list[Reward]) -> Run:
        scorer = Scorer(rewards)
        opened.append((Run(scorer), scorer))
        return opened[-1][0]

    yield open_run
    for run, scorer in opened:
        run.close()
        scorer.close()


def test_a_response_is_scored_before_the_last_one_of_its_batch_has_ended(start: Callable[..., Run]) -> None:
    run = start([Reward(name="exact"), Reward(name="length", options={"max": 1})])
    rollouts = run.sampler.start(REQUESTS)
    run.release(1, "7")
    assert rollouts[1].result(60).outcomes() == {"exact": 1.0, "length": 1.0}
    run.release(0, "77")
    assert rollouts[0].result(60).outcomes() == {"exact": 0.0, "length": 0.0}
    assert not rollouts[2].done()
    run.release(2, "6")
    last = rollouts[2].result(60)
    assert (last.prompt, last.text, last.outcomes()) == (REQUESTS[2].prompt, "6", {"exact": 0.0, "length": 1.0})


def test_an_error_of_the_engine_is_the_error_of_every_response_without_result(start: Callable[..., Run]) -> None:
    run = start([Reward(name="exact")])
    rollouts = run.sampler.start(REQUESTS)
    run.release(1, "7")
    rollouts[1].result(60)
    run.release(0, EngineError("the prompt is too long"))
    for number in (0, 2):
        with pytest.raises(EngineError, match="too long"):
            rollouts[number].result(60)
