"""From prompts to scored responses: the rollout batch of a step."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from threading import Lock

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.training import Validation
from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import NEEDS_BASELINES
from rlt_trainer.algorithms.shaping import compute_overlong_penalty, filter_groups
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver import saved_rollouts
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.rollouts import Rollout, RolloutRequest, RolloutSampler
from rlt_trainer.driver.schedule import Schedule
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import Terminated, TrainingError
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.scorer import ENVIRONMENT, Scorer, to_outcomes
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)

MAX_FRUITLESS = 20
"""Number of generations in a row that may keep no group, without maxNumGenBatches. The field's description has it."""
VALIDATION_STEP = 0
"""The step of the seeds of validations. Training starts with step 1."""


class RolloutGenerator:
    """Generates responses and scores them. State: the number of consumed prompts, and the batches of later steps."""

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
        self._termination = termination
        staleness = config.rollout.staleness
        self._max_staleness = staleness.max_steps if staleness else 0
        # The responses of several steps are in the engines, so that these do not wait for the last ones of a step. With
        # filterGroups, a step takes prompts until it has enough, and the next step takes the prompts after them.
        steps = 1 if config.algorithm.filter_groups else 1 + self._max_staleness
        self._threads = ThreadPoolExecutor(steps, thread_name_prefix="generation")
        self._scoring = Lock()
        self._sampler = RolloutSampler(
            config.rollout.multi_turn, config.data, engines=engines, tokenizer=tokenizer, scorer=scorer
        )
        self._schedule: Schedule[RolloutBatch] | None = None
        self._restored: dict[int, RolloutBatch] = {}
        self.consumed = 0
        """Number of prompts taken from the data set."""

    def batches(self, steps: range) -> Iterator[tuple[int, RolloutBatch]]:
        """Iterate over the steps and their rollout batches, generated at most rollout.staleness steps ahead."""
        self._schedule = Schedule(
            self._start,
            steps,
            max_staleness=self._max_staleness,
            finished=self._restored,
            wait=self._engines.wait,
        )
        return iter(self._schedule)

    def pack_ahead(self, step: int) -> dict[str, Tensor]:
        """Return the batches that are already generated for steps after `step`, as tensors for its checkpoint."""
        return saved_rollouts.pack(self._schedule.finished(step)) if self._schedule else {}

    def restore(self, consumed: int, ahead: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint. `consumed`: number of prompts taken up to its step."""
        self._restored = saved_rollouts.unpack(ahead, prompts=self._prompts.by_index, decode=self._decode)
        self.consumed = max([consumed, *(batch.consumed for batch in self._restored.values())])

    def _start(self, step: int) -> Future[RolloutBatch]:
        if self._max_staleness > 0:
            first = None if self._config.algorithm.filter_groups else self._take()
            return self._threads.submit(self.generate_batch, step, first)
        done: Future[RolloutBatch] = Future()
        done.set_result(self.generate_batch(step))
        return done

    def _take(self) -> tuple[list[Prompt], int]:
        """Take the prompts of one generation. Return them and the number of prompts taken so far."""
        taken = self._prompts.take(self.consumed, self._config.training.train_batch_size)
        self.consumed += len(taken)
        return taken, self.consumed

    def generate_batch(self, step: int, first: tuple[list[Prompt], int] | None = None) -> RolloutBatch:
        """Generate and score responses to training.trainBatchSize prompts.

        With algorithm.filterGroups (DAPO's dynamic sampling), keep only groups whose responses differ in the metric,
        and generate until there are enough groups. Raises TrainingError if maxNumGenBatches generations are not enough,
        and without it if MAX_FRUITLESS in a row keep no group.
        After SIGTERM, raises Terminated instead of a further generation.
        `first`: the prompts of the first generation.
        """
        algorithm, size, n = self._config.algorithm, self._config.training.train_batch_size, self._config.rollout.n
        kept: list[RolloutBatch] = []
        fruitless = 0
        for attempt in count(1):
            taken, consumed = first if first is not None and attempt == 1 else self._take()
            batch = self._generate(step, attempt, taken, consumed)
            filtering = algorithm.filter_groups
            if filtering is None:
                return batch
            metric = compute_filter_metric(batch, filtering.metric)
            kept.append(batch.rows(filter_groups(metric, compute_group_numbers(len(metric), n)).nonzero()[:, 0]))
            fruitless = 0 if kept[-1].prompts else fruitless + 1
            filtered = RolloutBatch.concatenate(kept)
            if len(filtered.prompts) >= size * n:
                return filtered.rows(torch.arange(size * n))
            progress = (
                f"{len(filtered.prompts) // n} of {size} prompts have responses that differ in {filtering.metric} "
                f"(algorithm.filterGroups) after {attempt} generations"
            )
            if fruitless == MAX_FRUITLESS and filtering.max_num_gen_batches == 0:
                raise TrainingError(
                    f"Only {progress}, and the last {fruitless} added none. Use other prompts or another reward, "
                    "increase responsesPerPrompt, or set maxNumGenBatches to continue for longer."
                )
            if attempt == filtering.max_num_gen_batches:
                raise TrainingError(
                    f"Only {progress}: the prompts are too easy or too hard. Increase maxNumGenBatches or "
                    "responsesPerPrompt, or use other prompts."
                )
            if self._termination.requested:
                raise Terminated(f"Training was terminated (SIGTERM) after {attempt} generations of step {step}.")
            print(f"[training] step {step}: {progress}", flush=True)
        raise AssertionError("count() does not end")

    def validate(self, prompts: Sequence[Prompt], validation: Validation) -> RolloutBatch:
        """Generate and score responses to, or conversations on, the prompts of the validation set.

        All validations use the same seeds. Requests for training that wait in the router go after them.
        """
        repeated = [prompt for prompt in prompts for _ in range(validation.n)]
        sampling = replace(self._engines.sampling.greedy(), temperature=validation.temperature)
        requests = self._build_requests(repeated, VALIDATION_STEP, 1, sampling)
        rollouts = [self._engines.wait(each) for each in self._sampler.start(requests, is_background=False)]
        with self._scoring:
            return self._build_batch(rollouts)

    def close(self) -> None:
        """Stop the generation threads. Batches in progress are discarded."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sampler.close()

    def _generate(self, step: int, attempt: int, taken: Sequence[Prompt], consumed: int) -> RolloutBatch:
        n, sampling = self._config.rollout.n, self._engines.sampling
        with self._stopwatch.measure("gen"):
            requests = self._build_requests([prompt for prompt in taken for _ in range(n)], step, attempt, sampling)
            greedy = []
            if self._config.algorithm.adv_estimator in NEEDS_BASELINES:
                greedy = [replace(request, sampling=sampling.greedy()) for request in requests[::n]]
            rollouts = [self._engines.wait(each) for each in self._sampler.start([*requests, *greedy])]
        with self._scoring, self._stopwatch.measure("reward"):
            baselines = None
            if greedy:
                greedy_batch = self._build_batch(rollouts[len(requests) :])
                baselines = (greedy_batch.scores.total + greedy_batch.penalties).repeat_interleave(n)
            return self._build_batch(rollouts[: len(requests)], baselines, consumed)

    def _build_requests(
        self, prompts: Sequence[Prompt], step: int, attempt: int, sampling: Sampling
    ) -> list[RolloutRequest]:
        seeds = derive_sampling_seeds(self._config.training.seed, step, attempt, len(prompts))
        return [RolloutRequest(prompt, seed, sampling) for prompt, seed in zip(prompts, seeds, strict=True)]

    def _build_batch(
        self, rollouts: Sequence[Rollout], baselines: Tensor | None = None, consumed: int = 0
    ) -> RolloutBatch:
        """Wait for the scores of rules, functions and judges, and add those of reward models."""
        prompts, texts = [rollout.prompt for rollout in rollouts], [rollout.text for rollout in rollouts]
        outcomes = [rollout.outcomes() for rollout in rollouts]
        report_failures(outcomes)
        for name, path in self._scorer.models.items():
            for each, outcome in zip(outcomes, to_outcomes(self._model_scores(path, prompts, texts)), strict=True):
                each[name] = outcome
        responses = [rollout.response for rollout in rollouts]
        penalties = torch.zeros(len(responses))
        if buffer := self._config.algorithm.overlong_buffer:
            penalties = compute_overlong_penalty(
                torch.tensor([len(response.token_ids) for response in responses]),
                max_response_length=self._config.data.max_response_length,
                buffer_length=buffer.length,
                penalty_factor=buffer.penalty_factor,
            )
        return RolloutBatch(prompts, responses, texts, self._scorer.combine(outcomes), penalties, baselines, consumed)

    def _decode(self, token_ids: list[list[int]]) -> list[str]:
        return [str(text) for text in self._tokenizer.batch_decode(token_ids, skip_special_tokens=True)]

    def _model_scores(self, path: str, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        """Score responses with a reward model: [B]. Rank r of R scores the rows r, r + R, r + 2 R, …"""
        ranks = len(self._workers)
        by_rank = self._workers.each(
            TrainWorker.model_rewards,
            [path] * ranks,
            [list(prompts[rank::ranks]) for rank in range(ranks)],
            [list(texts[rank::ranks]) for rank in range(ranks)],
        )
        scores = torch.empty(len(texts))
        for rank, part in enumerate(by_rank):
            scores[rank::ranks] = part
        return scores


def compute_filter_metric(batch: RolloutBatch, metric: str) -> Tensor:
    """Return the metric that DAPO's filter compares within a group: [B], NaN if a reward failed.

    acc is the first reward, score the weighted sum of all rewards, seq_reward the score plus the overlong penalty.
    """
    scores = batch.scores
    match metric:
        case "acc":
            return torch.where(scores.failed, torch.nan, next(iter(scores.by_reward.values())))
        case "score":
            return scores.total
        case _:
            return scores.total + batch.penalties


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


def compute_group_numbers(responses: int, n: int) -> Tensor:
    """Return the group number of each response: [B], `n` responses to each prompt."""
    return torch.arange(responses) // n


def derive_sampling_seeds(seed: int, step: int, attempt: int, responses: int) -> list[int]:
    """Return a seed for each response. It depends on seed, step, attempt and row, not on the number of ranks."""
    entropy = [seed, step] if attempt == 1 else [seed, step, attempt]
    return [int(value) for value in np.random.SeedSequence(entropy).generate_state(responses)]
