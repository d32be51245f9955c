"""From prompts to scored responses: the rollout batch of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import NEEDS_BASELINES
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.suites import Suite
from rlt_trainer.driver import saved_rollouts
from rlt_trainer.driver.batch_builder import BatchBuilder
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.group_filter import GroupFilter
from rlt_trainer.driver.metrics import compute_sandbox_metrics
from rlt_trainer.driver.rollouts import RolloutRequest, RolloutSampler
from rlt_trainer.driver.schedule import Group, Schedule
from rlt_trainer.driver.suite_responses import derive_sampling_seeds, start_responses
from rlt_trainer.driver.termination import Termination
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

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
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._batches = BatchBuilder(config, scorer, workers)
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
            batch = self._batches.build(
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

    def start_suites(self, suites: Sequence[Suite[EvaluationSet]]) -> Iterator[RolloutBatch]:
        """As in start_responses."""
        return start_responses(
            suites,
            engines=self._engines,
            sampler=self._sampler,
            batches=self._batches,
            seed=self._config.training.seed,
        )

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics of sandboxes since the last call."""
        return compute_sandbox_metrics(self._sampler.take_sandbox_statistics())

    def close(self) -> None:
        """End the processes of environments."""
        self._sampler.close()

    def keep(self, groups: Sequence[Group]) -> list[Group]:
        """As in Selection: with algorithm.filterGroups."""
        assert self._filter is not None
        batch = self._batches.build(
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

    def _decode(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))


def compute_staleness(responses: Sequence[Response], step: int) -> Tensor:
    """Return the optimizer steps between the weights that began each response and the weights of `step`: [B].

    NaN for an episode without a request.
    """
    versions = [response.oldest_version for response in responses]
    return torch.tensor([torch.nan if version is None else step - 1 - version for version in versions])
