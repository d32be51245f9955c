"""Responses of the policy: each is scored as soon as it is complete, while others are generated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.engines import Engines
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.environments.conversations import Conversations, Converse
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.scorer import ENVIRONMENT, BatchScoring, Scorer
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.router import Foreground, Router
from rlt_trainer.sandboxes.pool import Statistics
from rlt_trainer.sandboxes.sandbox import SandboxError
from rlt_trainer.telemetry.spans import TESTING
from rlt_trainer.telemetry.stopwatch import Stopwatch

LANES = 8
"""Number of threads to which the spans of batches are assigned in turn: spans of one thread must not overlap."""


@dataclass(frozen=True)
class RolloutRequest:
    """A request for a response to a prompt, or for a conversation on it (rollout.multiTurn)."""

    prompt: Prompt
    seed: int
    sampling: Sampling


@dataclass(frozen=True)
class Rollout:
    """A complete response, or a conversation, with its scores."""

    prompt: Prompt
    response: Response
    text: str
    """The response without special tokens."""
    outcomes: dict[str, Outcome]
    """Name -> outcome of each reward, and of an environment. The driver adds the outcomes of reward models."""
    sandbox: Mapping[str, Any] | None = None
    """Of the conversation's sandbox: Sandbox.describe. It is not saved with a checkpoint."""


@dataclass(frozen=True, eq=False)
class PendingGroup:
    """Responses that are generated and scored together."""

    generated: Future[None] = field(default_factory=Future)
    """All responses are complete."""
    scored: Future[list[Rollout]] = field(default_factory=Future)
    """All responses have scores. Raises EngineError, or ValueError for a tool that cannot be opened."""

    def fail(self, error: Exception) -> None:
        """End the group with an error."""
        for future in (self.generated, self.scored):
            if not future.done():
                future.set_exception(error)


class RolloutSampler:
    """Generates responses in the event loop of the engines, and starts to score each when it is complete."""

    def __init__(
        self,
        multi_turn: MultiTurn | None,
        data: Data,
        *,
        engines: Engines,
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        stopwatch: Stopwatch,
    ) -> None:
        self._engines = engines
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._stopwatch = stopwatch
        self._conversations = Conversations(multi_turn, data, tokenizer) if multi_turn else None
        self._lanes = count()

    def start(self, groups: Sequence[Sequence[RolloutRequest]]) -> list[PendingGroup]:
        """Start the requests of each group."""
        pending = [PendingGroup() for _ in groups]
        self._engines.loop.submit(self._run_all(groups, pending, is_background=True))
        return pending

    def start_suites(self, suites: Sequence[Sequence[Sequence[RolloutRequest]]]) -> list[list[PendingGroup]]:
        """Start the groups of suites, one suite after the other. They precede the groups of `start` in the router."""
        pending = [[PendingGroup() for _ in groups] for groups in suites]
        self._engines.loop.submit(self._run_suites(suites, pending))
        return pending

    def take_sandbox_statistics(self) -> Statistics | None:
        """Return the statistics of sandboxes since the last call. None without sandboxes."""
        return self._conversations.take_statistics() if self._conversations else None

    def close(self) -> None:
        """End the processes of environments."""
        if self._conversations is not None:
            self._engines.loop.submit(self._conversations.close()).result()

    async def _run_suites(
        self, suites: Sequence[Sequence[Sequence[RolloutRequest]]], pending: Sequence[Sequence[PendingGroup]]
    ) -> None:
        for groups, each in zip(suites, pending, strict=True):
            await self._run_all(groups, each, is_background=False)

    async def _run_all(
        self, groups: Sequence[Sequence[RolloutRequest]], pending: Sequence[PendingGroup], *, is_background: bool
    ) -> None:
        sampler = self._engines.router if is_background else Foreground(self._engines.router)
        scoring = self._scorer.open_batch()
        try:
            async with (
                self._conversations.open() if self._conversations else nullcontext() as converse,
                asyncio.TaskGroup() as tasks,  # which a cancellation ends, and with them their sandboxes
            ):
                for requests, each in zip(groups, pending, strict=True):
                    tasks.create_task(self._run_group(sampler, converse, scoring, requests, each))
                lane = 1 + next(self._lanes) % LANES
                with self._stopwatch.measure("gen" if is_background else TESTING, thread=lane):
                    generated = (asyncio.wrap_future(each.generated) for each in pending)
                    await asyncio.gather(*generated, return_exceptions=True)
        except Exception as error:
            for each in pending:
                each.fail(error)

    async def _run_group(
        self,
        sampler: Router | Foreground,
        converse: Converse | None,
        scoring: BatchScoring,
        requests: Sequence[RolloutRequest],
        pending: PendingGroup,
    ) -> None:
        left = len(requests)

        def complete_one() -> None:
            nonlocal left
            left -= 1
            if not left:
                pending.generated.set_result(None)

        try:
            rollouts = (self._run_one(sampler, converse, scoring, each, complete_one) for each in requests)
            pending.scored.set_result(await asyncio.gather(*rollouts))
        except Exception as error:
            pending.fail(error)

    async def _run_one(
        self,
        sampler: Router | Foreground,
        converse: Converse | None,
        scoring: BatchScoring,
        request: RolloutRequest,
        complete: Callable[[], None],
    ) -> Rollout:
        """Generate a response, call `complete`, and score it. Its sandbox remains until then if a reward gets it."""
        prompt = request.prompt
        async with (converse or _respond)(sampler, prompt, seed=request.seed, sampling=request.sampling) as (
            episode,
            claim,
        ):
            complete()
            response = episode.response
            text = str(self._tokenizer.decode(list(response.token_ids), skip_special_tokens=True))
            exchange = None
            if claim is not None and scoring.takes_sandbox:
                with suppress(SandboxError):  # which the exchange raises again
                    await claim.get()  # before the reward's slot: those that have one do not wait for a pod
                exchange = claim.open_exchange()
            elif claim is not None:
                await claim.release()
            outcomes = await asyncio.wrap_future(scoring.start(text, prompt, exchange))
            if claim is not None:
                await claim.release()
        outcomes.update(find_environment_outcome(episode))
        return Rollout(prompt, response, text, outcomes, claim.record if claim else None)


@asynccontextmanager
async def _respond(
    sampler: Router | Foreground, prompt: Prompt, *, seed: int, sampling: Sampling
) -> AsyncIterator[tuple[Episode, None]]:
    """A Converse without a conversation: one response."""
    response = await sampler.sample(prompt.token_ids, seed=seed, sampling=sampling, images=prompt.images)
    yield Episode(response, None, None), None


def find_environment_outcome(episode: Episode) -> dict[str, Outcome]:
    """Return ENVIRONMENT -> the environment's reward, or its failure. Empty if it gives no reward."""
    if episode.failure is not None:
        return {ENVIRONMENT: Failure("environment", episode.failure)}
    return {} if episode.reward is None else {ENVIRONMENT: episode.reward}
