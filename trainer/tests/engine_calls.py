"""Blocking calls of a rollout engine, made by an event loop as in its process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

import torch
from torch import Tensor

from rlt_trainer.batches.response import Response
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rollout.engine import EngineError, Request, RolloutEngine, Sampling
from rlt_trainer.rollout.shared_channel import SharedSender
from rlt_trainer.rollout.weight_channel import send_weights
from rlt_trainer.rollout.weight_sums import Summation, Sums

R = TypeVar("R")


class EngineCalls:
    """An engine that is started, with a weight channel to this process for each of its devices."""

    def __init__(self, engine: RolloutEngine, sampling: Sampling, *, devices: int = 1) -> None:
        self.engine = engine
        self.sampling = sampling
        self._numbers = count()
        self._loop = EventLoopThread("engine")
        self.max_requests = self.call(engine.start())
        kind = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._senders = [SharedSender(kind) for _ in range(devices)]
        self.call(engine.open_channel([sender.address for sender in self._senders]))

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._loop.submit(coroutine).result(120)

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
    ) -> tuple[list[int], Future[list[Response]]]:
        """Submit requests. Return their numbers and the future of their responses."""
        sampling = sampling or self.sampling
        limits = max_tokens or [sampling.max_tokens] * len(prompts)
        requests = [
            Request(next(self._numbers), prompt, seed, sampling, limit)
            for prompt, seed, limit in zip(prompts, seeds, limits, strict=True)
        ]
        submitted: Future[list[Response]] = self._loop.submit(self._generate(requests))
        return [request.number for request in requests], submitted

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
    ) -> list[Response]:
        return self.start(prompts, seeds, sampling, max_tokens=max_tokens)[1].result(120)

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """As in Sampler, from another event loop."""
        limits = None if max_tokens is None else [max_tokens]
        (response,) = await asyncio.wrap_future(self.start([prompt], [seed], sampling, max_tokens=limits)[1])
        return response

    async def _generate(self, requests: Sequence[Request]) -> list[Response]:
        loop = asyncio.get_running_loop()
        futures: dict[int, asyncio.Future[Response]] = {each.number: loop.create_future() for each in requests}

        def done(number: int, result: Response | EngineError) -> None:
            if isinstance(result, EngineError):
                futures[number].set_exception(result)
            else:
                futures[number].set_result(result)

        await self.engine.submit(requests, done)
        return list(await asyncio.gather(*futures.values()))

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.call(self.engine.log_probs(sequences))

    def sum_weights(self) -> Sums:
        return self.call(self.engine.sum_weights())

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], *, limit: int = 2**20) -> Sums:
        """Send weights in buckets of `limit` bytes while the engine is paused. Return their sums."""
        self.call(self.engine.pause())
        summation = Summation()
        receiving = self._loop.submit(self._receive())
        held = list(weights) if len(self._senders) > 1 else weights
        sending = []
        for number, sender in enumerate(self._senders):
            sender.limit = limit
            followed = summation.follow(held) if number == 0 else held
            sending.append(self._loop.submit(asyncio.to_thread(send_weights, followed, sender)))
        for each in [receiving, *sending]:
            each.result(120)
        self.call(self.engine.resume())
        return summation.read()

    async def _receive(self) -> None:
        await self.engine.wake("weights")
        await self.engine.receive_weights()
        await self.engine.wake("kv_cache")

    def close(self) -> None:
        self.engine.close()
        for sender in self._senders:
            sender.close()
        self._loop.close()
