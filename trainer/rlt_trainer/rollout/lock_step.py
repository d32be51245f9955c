"""Requests of coroutines for an engine that generates whole batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import RolloutEngine, Sampling


@dataclass(frozen=True)
class _Request:
    prompt: Sequence[int]
    seed: int
    sampling: Sampling
    max_tokens: int | None
    response: asyncio.Future[Response]


class LockStepSampler:
    """A Sampler that generates the requests of all conversations as one batch, when each of them waits for one."""

    def __init__(self, engine: RolloutEngine) -> None:
        self._engine = engine
        self._conversations = 0
        self._waiting: list[_Request] = []

    @contextmanager
    def conversation(self) -> Iterator[None]:
        """Count a conversation. Each batch waits for the requests of all conversations."""
        self._conversations += 1
        try:
            yield
        finally:
            self._conversations -= 1
            self._generate()

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """See Sampler."""
        request = _Request(prompt, seed, sampling, max_tokens, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._generate()
        return await request.response

    def _generate(self) -> None:
        """Generate a batch if every conversation waits. Nothing else needs the event loop in the meantime."""
        if not self._waiting or len(self._waiting) < self._conversations:
            return
        batch = sorted(self._waiting, key=lambda request: request.seed)  # in an order that repeats
        self._waiting = []
        try:
            responses = self._engine.generate(
                [request.prompt for request in batch],
                [request.seed for request in batch],
                batch[0].sampling,
                max_tokens=[request.max_tokens or request.sampling.max_tokens for request in batch],
            )
        except Exception as error:
            for request in batch:
                request.response.set_exception(error)
            return
        for request, response in zip(batch, responses, strict=True):
            request.response.set_result(response)
