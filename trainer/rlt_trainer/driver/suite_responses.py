"""Responses to the prompts of suites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.dataset import EvaluationSet
from rlt_trainer.data.suites import Suite
from rlt_trainer.driver.batch_builder import BatchBuilder
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.rollouts import PendingGroup, Rollout, RolloutRequest, RolloutSampler

EVALUATION_STEP = 0
"""The step in the seeds of evaluations. Training starts with step 1."""


def start_responses(
    suites: Sequence[Suite[EvaluationSet]],
    *,
    engines: Engines,
    sampler: RolloutSampler,
    batches: BatchBuilder,
    seed: int,
) -> Iterator[RolloutBatch]:
    """Start to generate and score responses to, or conversations on, the prompts of suites, one suite after the other.

    Return an iterator that waits for the batch of each suite. All evaluations with the same `seed` use the same seeds.
    Requests for training that wait in the router go after them.
    """
    pending = sampler.start_suites([_build_requests(suite, engines, seed) for suite in suites])

    def build(suite: Suite[EvaluationSet], groups: Sequence[PendingGroup]) -> RolloutBatch:
        rollouts: list[list[Rollout]] = [engines.wait(each.scored) for each in groups]
        return batches.build(rollouts, suite.settings.responses_per_prompt)

    return map(build, suites, pending)


def _build_requests(suite: Suite[EvaluationSet], engines: Engines, seed: int) -> list[list[RolloutRequest]]:
    prompts = suite.rows.prompts
    n = suite.settings.responses_per_prompt
    seeds = derive_sampling_seeds(seed, EVALUATION_STEP, 1, len(prompts) * n)
    sampling = replace(engines.sampling.greedy(), temperature=suite.settings.temperature)
    return [
        [RolloutRequest(prompt, each, sampling) for each in seeds[row * n : (row + 1) * n]]
        for row, prompt in enumerate(prompts)
    ]


def derive_sampling_seeds(seed: int, step: int, attempt: int, responses: int) -> list[int]:
    """Return a seed for each response. It depends on seed, step, attempt and row, not on the number of ranks."""
    entropy = [seed, step] if attempt == 1 else [seed, step, attempt]
    return [int(value) for value in np.random.SeedSequence(entropy).generate_state(responses)]
