"""Responses to the prompts of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rlt_api.blocks.evaluation import Evaluation
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.batch_builder import BatchBuilder
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.rollouts import Rollout, RolloutRequest, RolloutSampler

EVALUATION_STEP = 0
"""The step in the seeds of evaluations. Training starts with step 1."""


def generate_responses(
    prompts: Sequence[Prompt],
    settings: Evaluation,
    *,
    engines: Engines,
    sampler: RolloutSampler,
    batches: BatchBuilder,
    seed: int,
) -> RolloutBatch:
    """Generate and score responses to, or conversations on, the prompts of a suite.

    All evaluations with the same `seed` use the same seeds. Requests for training that wait in the router go after
    them.
    """
    n = settings.responses_per_prompt
    seeds = derive_sampling_seeds(seed, EVALUATION_STEP, 1, len(prompts) * n)
    sampling = replace(engines.sampling.greedy(), temperature=settings.temperature)
    groups = [
        [RolloutRequest(prompt, each, sampling) for each in seeds[row * n : (row + 1) * n]]
        for row, prompt in enumerate(prompts)
    ]
    pending = sampler.start(groups, is_background=False)
    rollouts: list[list[Rollout]] = [engines.wait(each.scored) for each in pending]
    return batches.build(rollouts, n)


def derive_sampling_seeds(seed: int, step: int, attempt: int, responses: int) -> list[int]:
    """Return a seed for each response. It depends on seed, step, attempt and row, not on the number of ranks."""
    entropy = [seed, step] if attempt == 1 else [seed, step, attempt]
    return [int(value) for value in np.random.SeedSequence(entropy).generate_state(responses)]
