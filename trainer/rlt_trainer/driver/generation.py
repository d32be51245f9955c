"""From prompts to scored responses: what a step learns from."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import NEEDS_BASELINES
from rlt_trainer.algorithms.shaping import filter_groups, overlong_penalty
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver import saved_rollouts
from rlt_trainer.driver.engines import RolloutEngines
from rlt_trainer.driver.schedule import Schedule
from rlt_trainer.driver.termination import Termination
from rlt_trainer.driver.worker_group import TrainWorkers
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.errors import Terminated, TrainingError
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.engine import Response
from rlt_trainer.telemetry.stopwatch import Stopwatch

_log = logging.getLogger(__name__)


class RolloutGenerator:
    """Generates and scores. Its state: how many prompts have been taken, and what was generated ahead of its step."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        engines: RolloutEngines,
        workers: TrainWorkers,
        prompts: PromptDataset,
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        watch: Stopwatch,
        termination: Termination,
    ) -> None:
        self._config = config
        self._engines = engines
        self._workers = workers
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._scorer = scorer
        self._watch = watch
        self._termination = termination
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="generation")
        self._schedule: Schedule[RolloutBatch] | None = None
        self._restored: dict[int, RolloutBatch] = {}
        self.consumed = 0
        """Prompts taken from the data set so far."""

    def batches(self, steps: range) -> Iterator[tuple[int, RolloutBatch]]:
        """What each of the steps learns from, at most rollout.staleness steps ahead of the training."""
        staleness = self._config.rollout.staleness
        self._schedule = Schedule(
            self._start, steps, max_staleness=staleness.max_steps if staleness else 0, finished=self._restored
        )
        return iter(self._schedule)

    def ahead(self, step: int) -> dict[str, Tensor]:
        """What has been generated for the steps after `step`, for its checkpoint."""
        return saved_rollouts.pack(self._schedule.finished(step)) if self._schedule else {}

    def restore(self, consumed: int, ahead: Mapping[str, Tensor]) -> None:
        """Go on from a checkpoint, `consumed` being the prompts that its step had taken."""
        self._restored = saved_rollouts.unpack(ahead, prompts=self._prompts.by_index, decode=self._decode)
        self.consumed = max([consumed, *(generated.consumed for generated in self._restored.values())])

    def _start(self, step: int) -> Future[RolloutBatch]:
        if self._config.rollout.staleness is not None:
            return self._thread.submit(self.batch, step)
        done: Future[RolloutBatch] = Future()
        done.set_result(self.batch(step))
        return done

    def batch(self, step: int) -> RolloutBatch:
        """Responses to training.trainBatchSize prompts; with algorithm.filterGroups (DAPO's dynamic sampling) only
        such groups whose responses differ in their score, generated until there are enough.

        Raises TrainingError when maxNumGenBatches generations do not suffice, Terminated after SIGTERM where a further
        one would follow.
        """
        algorithm, size, n = self._config.algorithm, self._config.training.train_batch_size, self._config.rollout.n
        kept: list[RolloutBatch] = []
        for attempt in count(1):
            generated = self._generate(step, attempt)
            filtering = algorithm.filter_groups
            if filtering is None:
                return generated
            metric = differing(generated, filtering.metric)
            kept.append(generated.rows(filter_groups(metric, group_numbers(len(metric), n)).nonzero()[:, 0]))
            whole = RolloutBatch.joined(kept)
            if len(whole.prompts) >= size * n:
                return whole.rows(torch.arange(size * n))
            if attempt == filtering.max_num_gen_batches:
                raise TrainingError(
                    f"After {attempt} generations only {len(whole.prompts) // n} of {size} prompts have responses of "
                    f"different {filtering.metric} (algorithm.filterGroups): the prompts are too easy or too hard. "
                    "Raise maxNumGenBatches or responsesPerPrompt, or take other prompts."
                )
            if self._termination.requested:
                raise Terminated(f"The training was asked to end (SIGTERM) after {attempt} generations of step {step}.")
            print(
                f"[training] step {step}: after {attempt} generations {len(whole.prompts) // n} of {size} prompts have "
                f"responses of different {filtering.metric} (algorithm.filterGroups)",
                flush=True,
            )
        raise AssertionError("count() does not end")

    def validate(self, prompts: Sequence[Prompt]) -> RolloutBatch:
        """One greedy response to each prompt of the validation set, or conversation on it."""
        return self._scored(prompts, self._respond(prompts, [0] * len(prompts), greedily=True))

    def close(self) -> None:
        """End the thread that runs ahead. What it still generates is given up."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _generate(self, step: int, attempt: int) -> RolloutBatch:
        n = self._config.rollout.n
        taken = self._prompts.take(self.consumed, self._config.training.train_batch_size)
        self.consumed += len(taken)
        prompts = [prompt for prompt in taken for _ in range(n)]
        with self._watch.measure("gen"):
            seeds = sampling_seeds(self._config.training.seed, step, attempt, len(prompts))
            answers = self._respond(prompts, seeds)
            greedy = None
            if self._config.algorithm.adv_estimator in NEEDS_BASELINES:
                greedy = self._respond(taken, seeds[::n], greedily=True)
        with self._watch.measure("reward"):
            baselines = None
            if greedy is not None:
                scored = self._scored(taken, greedy)
                baselines = (scored.scores.total + scored.penalties).repeat_interleave(n)
            return self._scored(prompts, answers, baselines)

    def _respond(self, prompts: Sequence[Prompt], seeds: Sequence[int], *, greedily: bool = False) -> list[Any]:
        """A response to each prompt, or a conversation (Episode) on it."""
        if self._config.rollout.multi_turn is not None:
            return self._engines.map("converse_greedily" if greedily else "converse", prompts, seeds).result()
        tokens = [prompt.token_ids for prompt in prompts]
        return self._engines.map("generate_greedily" if greedily else "generate", tokens, seeds).result()

    def _scored(
        self, prompts: Sequence[Prompt], answers: Sequence[Response | Episode], baselines: Tensor | None = None
    ) -> RolloutBatch:
        responses = [answer.response if isinstance(answer, Episode) else answer for answer in answers]
        if failures := [each.failure for each in answers if isinstance(each, Episode) and each.failure is not None]:
            _log.warning("the environment failed in %s of %s: %s", len(failures), len(answers), failures[0])
        token_ids = [list(response.token_ids) for response in responses]
        texts = self._decode(token_ids)
        models = {name: self._scores_by_model(path, prompts, texts) for name, path in self._scorer.models.items()}
        scores = self._scorer.score(texts, prompts, models=models, environment=environment_rewards(answers))
        lengths = torch.tensor([len(response.token_ids) for response in responses])
        penalties = torch.zeros(len(responses))
        if buffer := self._config.algorithm.overlong_buffer:
            penalties = overlong_penalty(
                lengths,
                max_response_length=self._config.data.max_response_length,
                buffer_length=buffer.length,
                penalty_factor=buffer.penalty_factor,
            )
        return RolloutBatch(list(prompts), responses, texts, scores, penalties, baselines, self.consumed)

    def _decode(self, token_ids: list[list[int]]) -> list[str]:
        return [str(text) for text in self._tokenizer.batch_decode(token_ids, skip_special_tokens=True)]

    def _scores_by_model(self, path: str, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        ranks = self._workers.ranks
        shares = [(list(prompts[rank::ranks]), list(texts[rank::ranks])) for rank in range(ranks)]
        asked, answered = zip(*shares, strict=True)
        scores = torch.empty(len(texts))
        for rank, part in enumerate(self._workers.each("model_rewards", [path] * ranks, asked, answered)):
            scores[rank::ranks] = part
        return scores


def differing(generated: RolloutBatch, metric: str) -> Tensor:
    """What DAPO's filter compares within a group: [B], NaN where a reward failed.

    acc is the first reward alone, score the weighted sum of all, seq_reward that with the penalty of overlong ones.
    """
    scores = generated.scores
    match metric:
        case "acc":
            return torch.where(scores.failed, torch.nan, next(iter(scores.by_reward.values())))
        case "score":
            return scores.total
        case _:
            return scores.total + generated.penalties


def environment_rewards(answers: Sequence[Response | Episode]) -> Tensor | None:
    """[B], NaN where the environment failed; None where no environment gives rewards."""
    episodes = [answer for answer in answers if isinstance(answer, Episode)]
    if all(episode.reward is None and episode.failure is None for episode in episodes):
        return None
    return torch.tensor([torch.nan if e.failure is not None else e.reward or 0.0 for e in episodes])


def group_numbers(responses: int, n: int) -> Tensor:
    """The number of each response's group: [B], n responses to each prompt."""
    return torch.arange(responses) // n


def sampling_seeds(seed: int, step: int, attempt: int, responses: int) -> list[int]:
    """A seed for each response: of the run's seed, step, attempt and place alone, whatever the number of ranks."""
    entropy = [seed, step] if attempt == 1 else [seed, step, attempt]
    return [int(value) for value in np.random.SeedSequence(entropy).generate_state(responses)]
