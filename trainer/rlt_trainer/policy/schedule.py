"""The learning rate as a function of the step: stateless, so a checkpoint does not contain it."""

from __future__ import annotations

import math

from rlt_api.blocks.training import LearningRateSchedule


def learning_rate_factor(schedule: LearningRateSchedule, step: int, total_steps: int) -> float:
    """Return the factor of the learning rate in training step `step` (from 1).

    It increases linearly to 1 in `warmup_steps` steps, from 1 / warmup_steps in the first (verl starts at 0, a step
    without effect). Then it decreases, by half a cosine or linearly, to `min_ratio` in the step after `decay_steps`
    (default: `total_steps`), so that the last step of a decay to 0 still learns.
    """
    if step < schedule.warmup_steps:
        return step / schedule.warmup_steps
    if schedule.type == "constant":
        return 1.0
    end = schedule.decay_steps or total_steps
    progress = min(1.0, (step - schedule.warmup_steps) / (end - schedule.warmup_steps + 1))
    remaining = (1 + math.cos(math.pi * progress)) / 2 if schedule.type == "cosine" else 1 - progress
    return schedule.min_ratio + (1 - schedule.min_ratio) * remaining
