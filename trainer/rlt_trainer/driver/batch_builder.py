"""Batches of scored responses, from groups of rollouts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.shaping import compute_overlong_penalty
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.driver.rollouts import Rollout
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.scorer import ENVIRONMENT, Scorer, to_outcomes
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)


class BatchBuilder:
    """Builds batches, and adds the scores of reward models, which run on the train workers."""

    def __init__(self, config: TrainingConfig, scorer: Scorer, workers: WorkerGroup[TrainWorker] | None) -> None:
        """`workers`: None for a job without train workers, which has no reward models (evaluateOnly)."""
        self._config = config
        self._scorer = scorer
        self._workers = workers

    def build(self, groups: Sequence[Sequence[Rollout]], n: int, *, log: bool = True) -> RolloutBatch:
        """Build the batch from groups of `n` responses, each with ReMax's greedy one if it has n + 1.

        `log` failed rewards.
        """
        batch = self._combine([rollout for group in groups for rollout in group[:n]], log=log)
        if greedy := [rollout for group in groups for rollout in group[n:]]:
            baselines = self._combine(greedy, log=log)
            batch = replace(batch, baselines=(baselines.scores.total + baselines.penalties).repeat_interleave(n))
        return batch

    def _combine(self, rollouts: Sequence[Rollout], *, log: bool) -> RolloutBatch:
        """Combine the scores of responses, after the scores of reward models are added."""
        for name, path in self._scorer.models.items():
            unscored = [rollout for rollout in rollouts if name not in rollout.outcomes]
            scores = self._model_scores(path, unscored) if unscored else torch.empty(0)
            for rollout, outcome in zip(unscored, to_outcomes(scores), strict=True):
                rollout.outcomes[name] = outcome
        outcomes = [rollout.outcomes for rollout in rollouts]
        if log:
            report_failures(outcomes)
        responses = [rollout.response for rollout in rollouts]
        penalties = torch.zeros(len(responses))
        if buffer := self._config.algorithm.overlong_buffer:
            penalties = compute_overlong_penalty(
                torch.tensor([len(response.token_ids) for response in responses]),
                max_response_length=self._config.data.max_response_length,
                buffer_length=buffer.length,
                penalty_factor=buffer.penalty_factor,
            )
        return RolloutBatch(
            [rollout.prompt for rollout in rollouts],
            responses,
            [rollout.text for rollout in rollouts],
            self._scorer.combine(outcomes, log=log),
            penalties,
            sandboxes=[rollout.sandbox for rollout in rollouts],
        )

    def _model_scores(self, path: str, rollouts: Sequence[Rollout]) -> Tensor:
        """Score responses with a reward model: [B]. Rank r of R scores the rows r, r + R, r + 2 R, …"""
        assert self._workers is not None
        ranks = len(self._workers)
        by_rank = self._workers.each(
            TrainWorker.model_rewards,
            [path] * ranks,
            [[rollout.prompt for rollout in rollouts[rank::ranks]] for rank in range(ranks)],
            [[rollout.text for rollout in rollouts[rank::ranks]] for rank in range(ranks)],
        )
        scores = torch.empty(len(rollouts))
        for rank, part in enumerate(by_rank):
            scores[rank::ranks] = part
        return scores


def report_failures(outcomes: Sequence[Mapping[str, Outcome]]) -> None:
    """Log a warning if conversations failed. Raises TrainingError if all of them did."""
    failures = [failed.message for each in outcomes if isinstance(failed := each.get(ENVIRONMENT), Failure)]
    if failures and len(failures) == len(outcomes):
        raise TrainingError(
            f"All {len(failures)} conversations of the batch failed: {failures[0]}. Correct the environment, the agent "
            "or the tools of rollout.multiTurn."
        )
    if failures:
        _log.warning("%s of %s conversations failed: %s", len(failures), len(outcomes), failures[0])
