"""The learning rate as a function of the step."""

from __future__ import annotations

import pytest

from rlt_api.blocks.training import LearningRateSchedule
from rlt_trainer.policy.schedule import learning_rate_factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        ({"type": "linear"}, [6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),
        ({"type": "linear", "warmup_steps": 2, "decay_steps": 4, "min_ratio": 0.1}, [0.5, 1, 0.7, 0.4, 0.1, 0.1]),
        ({"type": "cosine", "warmup_steps": 3}, [1 / 3, 2 / 3, 1, 0.5 + 2**0.5 / 4, 0.5, 0.5 - 2**0.5 / 4]),
    ],
)
def test_factors_of_six_steps(schedule: dict[str, object], expected: list[float]) -> None:
    block = LearningRateSchedule.model_validate(schedule)
    assert [learning_rate_factor(block, step, 6) for step in range(1, 7)] == pytest.approx(expected)
