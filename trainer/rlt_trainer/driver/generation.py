"""From prompts to scored responses: the rollout batch of a step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.evaluation import Evaluation
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import NEEDS_BASELINES
from rlt_trainer.algorithms.shaping import compute_overlong_penalty
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver import saved_rollouts
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.group_filter import GroupFilter
from rlt_trainer.driver.rollouts import Rollout, RolloutRequest, RolloutSampler
from rlt_trainer.driver.schedule import Group, Schedule
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.scorer import ENVIRONMENT, Scorer, to_outcomes
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)

EVALUATION_STEP = 0
"""The step in the seeds of validations. Training starts with step 1."""
TAKEN = "taken"
"""Key in a checkpoint: the number of prompts taken from the data set."""


class RolloutGenerator:
    """Generates and scores the batch of each step. State: the number of prompts taken, and the groups in progress."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        engines: Engines,
        workers: WorkerGroup[TrainWorker],
        prompts: PromptDataset,
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        stopwatch: Stopwatch,
        termination: Termination,
    ) -> None:
        self._config = config
        self._engines = engines
        self._workers = workers
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._stopwatch = stopwatch
        self._sampler = RolloutSampler(
            config.rollout.multi_turn,
            config.data,
            engines=engines,
            tokenizer=tokenizer,
            scorer=scorer,
            stopwatch=stopwatch,
        )
        size = config.training.train_batch_size
        filtering = config.algorithm.filter_groups
        self._filter = (
            GroupFilter(filtering, size=size, n=config.rollout.responses_per_prompt, termination=termination)
            if filtering
            else None
        )
        self._schedule = Schedule(
            self._start_generation,
            size=size,
            max_staleness=config.rollout.staleness.max_steps if config.rollout.staleness else 0,
            last_step=config.training.total_steps,
            selection=self if self._filter else None,
            wait=self._wait,
        )
        self._taken = 0
        """Number of prompts taken from the data set."""
        self._sent = (0, 0)
        """The step of the latest generation, and the number of generations sent in this step."""

        self._ahead: Mapping[str, Tensor] = {}
        """The tensors of the checkpoint from which the run resumes."""

    def generate_batch(self, step: int) -> RolloutBatch:
        """Return the scored responses to training.trainBatchSize prompts, for `step`.

        With algorithm.filterGroups, raises TrainingError or Terminated as GroupFilter.validate_progress does.
        """
        if self._filter:
            self._filter.begin_batch()
        self._continue_restored(step)
        groups = self._schedule.next_batch(step)
        with self._stopwatch.measure("reward"):
            batch = self._build_batch(
                [group.pending.scored.result() for group in groups],
                self._config.rollout.responses_per_prompt,
                log=self._filter is None,
            )
        if self._filter:
            scores = replace(batch.scores, reasons=dict(self._filter.reasons))
            batch = replace(batch, scores=scores, num_gen_batches=self._filter.generations)
        if self._config.rollout.staleness:
            batch = replace(batch, staleness=compute_staleness(batch.responses, step))
        ready, others = self._schedule.groups_ahead(step)
        return replace(batch, consumed=self._taken - len(ready) - len(others))

    def send_ahead(self, step: int) -> None:
        """Send the requests of `step` before it begins, after the weight sync of the step before. Not on-policy."""
        self._schedule.send_ahead(step)

    def pack_ahead(self, step: int) -> dict[str, Tensor]:
        """Return the groups of steps after `step`, as tensors for its checkpoint."""
        groups = saved_rollouts.pack(*self._schedule.groups_ahead(step))
        if not groups:
            return {}
        counts = self._filter.pack() if self._filter and self._schedule.has_batch_after(step) else {}
        return {**groups, **counts, TAKEN: torch.tensor(self._taken)}

    def restore(self, consumed: int, ahead: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint. `consumed`: number of prompts taken that are not in `ahead`."""
        self._ahead = ahead
        self._taken = int(ahead.get(TAKEN, consumed))

    def evaluate(self, prompts: Sequence[Prompt], settings: Evaluation) -> RolloutBatch:
        """Generate and score responses to, or conversations on, the prompts of a suite.

        All evaluations use the same seeds. Requests for training that wait in the router go after them.
        """
        n = settings.responses_per_prompt
        seeds = derive_sampling_seeds(self._config.training.seed, EVALUATION_STEP, 1, len(prompts) * n)
        sampling = replace(self._engines.sampling.greedy(), temperature=settings.temperature)
        groups = [
            [RolloutRequest(prompt, seed, sampling) for seed in seeds[row * n : (row + 1) * n]]
            for row, prompt in enumerate(prompts)
        ]
        pending = self._sampler.start(groups, is_background=False)
        rollouts: list[list[Rollout]] = [self._engines.wait(each.scored) for each in pending]
        return self._build_batch(rollouts, n)

    def close(self) -> None:
        """End the processes of environments."""
        self._sampler.close()

    def keep(self, groups: Sequence[Group]) -> list[Group]:
        """As in Selection: with algorithm.filterGroups."""
        assert self._filter is not None
        batch = self._build_batch(
            [group.pending.scored.result() for group in groups], self._config.rollout.responses_per_prompt
        )
        return [group for group, is_kept in zip(groups, self._filter.select(batch), strict=True) if is_kept]

    def validate_progress(self, step: int, ready: int) -> None:
        """As in Selection: with algorithm.filterGroups."""
        assert self._filter is not None
        self._filter.validate_progress(step, ready)

    def _continue_restored(self, step: int) -> None:
        """Add the groups of the checkpoint from which the run resumes. Those without results are sent again."""
        ahead = self._ahead
        self._ahead = {}
        ready, others = saved_rollouts.unpack(ahead, prompts=self._prompts.by_index, decode=self._decode)
        complete = [group for group in others if group.results() is not None]
        again = [group for group in others if group.results() is None]
        sent = self._start(step, [(group.number, group.prompt, group.seeds) for group in again])
        self._schedule.restore(ready, [*complete, *sent])
        if self._filter and ahead:
            self._filter.restore(ahead)

    def _start_generation(self, step: int) -> list[Group]:
        """Send the requests on the next training.trainBatchSize prompts."""
        size = self._config.training.train_batch_size
        n = self._config.rollout.responses_per_prompt
        self._sent = step, 1 + (self._sent[1] if self._sent[0] == step else 0)
        seeds = derive_sampling_seeds(self._config.training.seed, *self._sent, size * n)
        prompts = self._prompts.take(self._taken, size)
        groups = [(self._taken + row, prompt, seeds[row * n : (row + 1) * n]) for row, prompt in enumerate(prompts)]
        self._taken += size
        return self._start(step, groups)

    def _start(self, step: int, groups: Sequence[tuple[int, Prompt, Sequence[int]]]) -> list[Group]:
        """Send the requests of groups: the position in the data, the prompt and the seeds of each."""
        sampling = self._engines.sampling
        requests = [[RolloutRequest(prompt, seed, sampling) for seed in seeds] for _, prompt, seeds in groups]
        if self._config.algorithm.adv_estimator in NEEDS_BASELINES:
            requests = [[*each, replace(each[0], sampling=sampling.greedy())] for each in requests]
        return [
            Group(number, step, prompt, seeds, pending)
            for (number, prompt, seeds), pending in zip(groups, self._sampler.start(requests), strict=True)
        ]

    def _wait(self, changed: Future[None], is_generating: bool) -> None:
        with self._stopwatch.measure("gen" if is_generating else "reward"):
            self._engines.wait(changed)

    def _build_batch(self, groups: Sequence[Sequence[Rollout]], n: int, *, log: bool = True) -> RolloutBatch:
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
        )

    def _decode(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    def _model_scores(self, path: str, rollouts: Sequence[Rollout]) -> Tensor:
        """Score responses with a reward model: [B]. Rank r of R scores the rows r, r + R, r + 2 R, …"""
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


def compute_staleness(responses: Sequence[Response], step: int) -> Tensor:
    """Return the optimizer steps between the weights that began each response and the weights of `step`: [B].

    NaN for an episode without a request.
    """
    versions = [response.oldest_version for response in responses]
    return torch.tensor([torch.nan if version is None else step - 1 - version for version in versions])


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


def derive_sampling_seeds(seed: int, step: int, attempt: int, responses: int) -> list[int]:
    """Return a seed for each response. It depends on seed, step, attempt and row, not on the number of ranks."""
    entropy = [seed, step] if attempt == 1 else [seed, step, attempt]
    return [int(value) for value in np.random.SeedSequence(entropy).generate_state(responses)]
