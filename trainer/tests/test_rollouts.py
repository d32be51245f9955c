"""Responses are scored while others are generated."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
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
from rlt_trainer.rewards import sources
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.router import Router
from rlt_trainer.telemetry.stopwatch import Stopwatch

TOKENIZER = build_byte_tokenizer()
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=4, stop_token_ids=())
REQUESTS = [
    [RolloutRequest(Prompt(number, (number,), "?", "7", "7", ""), seed, SAMPLING) for seed in range(2)]
    for number in range(3)
]
"""Three groups of two responses: the router numbers them from 0 to 5."""


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
        self.sampler = RolloutSampler(
            None, Data(), engines=engines, tokenizer=TOKENIZER, scorer=scorer, stopwatch=Stopwatch()
        )

    async def _open(self) -> tuple[HeldEngine, Router]:
        engine = HeldEngine()
        router = Router(lambda *_: None)
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


def test_responses_are_scored_before_the_last_one_of_their_batch_is_complete(start: Callable[..., Run]) -> None:
    run = start([Reward(name="exact"), Reward(name="length", options={"max": 1})])
    first, second, third = run.sampler.start(REQUESTS)
    run.release(2, "7")
    run.release(3, "77")
    assert [rollout.outcomes for rollout in second.scored.result(60)] == [
        {"exact": 1.0, "length": 1.0},
        {"exact": 0.0, "length": 0.0},
    ]
    assert not first.generated.done()
    assert not third.generated.done()


def test_a_response_is_scored_while_another_one_of_its_group_is_generated(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    scored = Future[None]()

    def exact(response: str, ground_truth: str) -> float:
        events.append(f"scored {response}")
        if response == "7":
            scored.set_result(None)
        return float(response == ground_truth)

    monkeypatch.setitem(sources.RULES, "exact", exact)
    run = start([Reward(name="exact")])
    group, *_ = run.sampler.start(REQUESTS)
    run.release(0, "7")
    scored.result(60)
    events.append("release")
    run.release(1, "6")
    assert [rollout.text for rollout in group.scored.result(60)] == ["7", "6"]
    assert events == ["scored 7", "release", "scored 6"]


def test_a_group_is_generated_before_its_scores_exist(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    grading = threading.Event()
    monkeypatch.setitem(sources.RULES, "exact", lambda response, ground_truth: float(grading.wait(60)))
    run = start([Reward(name="exact")])
    group, *_ = run.sampler.start(REQUESTS)
    run.release(0, "7")
    run.release(1, "6")
    group.generated.result(60)
    assert not group.scored.done()
    grading.set()
    assert [rollout.outcomes for rollout in group.scored.result(60)] == [{"exact": 1.0}] * 2


def test_an_engines_error_is_its_groups_error(start: Callable[..., Run]) -> None:
    run = start([Reward(name="exact")])
    first, second, _ = run.sampler.start(REQUESTS)
    run.release(0, EngineError("the prompt is too long"))
    for future in (first.generated, first.scored):
        with pytest.raises(EngineError, match="too long"):
            future.result(60)
    run.release(2, "7")
    run.release(3, "7")
    assert len(second.scored.result(60)) == 2
