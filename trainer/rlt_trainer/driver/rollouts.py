"""Responses of the policy: each is scored as soon as it is complete, while others are generated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass

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
from rlt_trainer.rollout.router import Foreground
from rlt_trainer.rollout.sampler import Sampler


@dataclass(frozen=True)
class RolloutRequest:
    """A request for a response to a prompt, or for a conversation on it (rollout.multiTurn)."""

    prompt: Prompt
    seed: int
    sampling: Sampling


@dataclass(frozen=True)
class Rollout:
    """A complete response, or a conversation."""

    prompt: Prompt
    response: Response
    text: str
    """The response without special tokens."""
    environment: Mapping[str, Outcome]
    """ENVIRONMENT -> the reward of the environment. Empty if it gives none."""
    scoring: Future[dict[str, Outcome]]
    """Name -> outcome of each reward but reward models."""

    def outcomes(self) -> dict[str, Outcome]:
        """Wait for the outcomes, and return them by name, with that of the environment."""
        return {**self.scoring.result(), **self.environment}


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
    ) -> None:
        self._engines = engines
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._conversations = Conversations(multi_turn, data, tokenizer) if multi_turn else None

    def start(self, requests: Sequence[RolloutRequest], *, is_background: bool = True) -> list[Future[Rollout]]:
        """Start the requests of a batch. Those that are not in the background precede others in the router.

        A future raises EngineError, or ValueError for a tool that cannot be opened.
        """
        rollouts: list[Future[Rollout]] = [Future() for _ in requests]
        self._engines.loop.submit(self._run_all(requests, rollouts, is_background=is_background))
        return rollouts

    def close(self) -> None:
        """End the processes of environments."""
        if self._conversations is not None:
            self._engines.loop.submit(self._conversations.close()).result()

    async def _run_all(
        self, requests: Sequence[RolloutRequest], rollouts: Sequence[Future[Rollout]], *, is_background: bool
    ) -> None:
        sampler = self._engines.router if is_background else Foreground(self._engines.router)
        scoring = self._scorer.open_batch()
        try:
            async with self._conversations.open() if self._conversations else nullcontext() as converse:
                await asyncio.gather(
                    *(
                        self._run_one(sampler, converse, scoring, request, rollout)
                        for request, rollout in zip(requests, rollouts, strict=True)
                    )
                )
        except Exception as error:
            for rollout in rollouts:
                if not rollout.done():
                    rollout.set_exception(error)

    async def _run_one(
        self,
        sampler: Sampler,
        converse: Converse | None,
        scoring: BatchScoring,
        request: RolloutRequest,
        rollout: Future[Rollout],
    ) -> None:
        prompt, environment = request.prompt, dict[str, Outcome]()
        if converse is not None:
            episode = await converse(sampler, prompt, seed=request.seed, sampling=request.sampling)
            response, environment = episode.response, find_environment_outcome(episode)
        else:
            response = await sampler.sample(prompt.token_ids, seed=request.seed, sampling=request.sampling)
        text = str(self._tokenizer.decode(list(response.token_ids), skip_special_tokens=True))
        rollout.set_result(Rollout(prompt, response, text, environment, scoring.start(text, prompt)))


def find_environment_outcome(episode: Episode) -> dict[str, Outcome]:
    """Return ENVIRONMENT -> the environment's reward, or its failure. Empty if it gives no reward."""
    if episode.failure is not None:
        return {ENVIRONMENT: Failure("not_finite", episode.failure)}
    return {} if episode.reward is None else {ENVIRONMENT: episode.reward}
