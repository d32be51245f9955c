"""Three tasks are learned from seeds, by GRPO, RLOO and PPO: the mean over the last steps, not the best of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from in_process import train

from rlt_api.training_config import TrainingConfig

pytestmark = pytest.mark.slow

MakeConfig = Callable[..., TrainingConfig]
LAST = 5
"""So many steps make the mean."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"advEstimator": "grpo", "klLossCoef": 0},
    "rloo": {"advEstimator": "rloo", "klLossCoef": 0},
    "ppo": {"advEstimator": "gae", "klLossCoef": 0, "critic": {"learningRate": 3e-3}},
}
BANDIT: dict[str, Any] = {
    "workers": 1,
    "data": {"preset": "bandit", "maxResponseLength": 1},
    "training": {"totalSteps": 55, "trainBatchSize": 8, "ppoMiniBatchSize": 8, "learningRate": 3e-3},
    "rollout": {"n": 64},
}
DIGITS: dict[str, Any] = {
    **BANDIT,
    "data": {"preset": "digits", "maxPromptLength": 8, "maxResponseLength": 12},
    "rewards": [{"name": "characters"}],
    "training": {"totalSteps": 30, "trainBatchSize": 32, "ppoMiniBatchSize": 16, "learningRate": 3e-3},
    "rollout": {"n": 16},
}
SUMS: dict[str, Any] = {
    **BANDIT,
    "data": {
        "preset": None,
        "inline": [{"prompt": f"{a}+{b}=", "answer": f"{a + b:02}"} for a in range(5) for b in range(5)],
        "maxPromptLength": 8,
        "maxResponseLength": 3,
    },
    "training": {
        "totalSteps": 35,
        "trainBatchSize": 25,
        "ppoMiniBatchSize": 25,
        "learningRate": 2e-3,
        "warmup": {"steps": 40, "batchSize": 25, "learningRate": 2e-3},
    },
    "rollout": {"n": 16},
}


def scores(config: TrainingConfig) -> list[float]:
    """The mean score of each step."""
    return [step["critic/score/mean"] for step in train(config)]


def last(values: list[float]) -> float:
    return sum(values[-LAST:]) / LAST


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bandit_from_random_weights(make_config: MakeConfig, algorithm: str) -> None:
    """One of 262 tokens is right in each of four states, and nothing else is paid for."""
    learned = scores(make_config(**BANDIT, algorithm=ALGORITHMS[algorithm]))
    assert learned[0] < 0.02
    assert last(learned) > 0.9


def test_a_bandit_one_step_behind(make_config: MakeConfig) -> None:
    """Responses of weights that are an update old lead to the same end."""
    ahead = {**BANDIT["rollout"], "mode": "separate", "workerGroup": "engines", "staleness": {"maxSteps": 1}}
    learned = scores(make_config(**{**BANDIT, "rollout": ahead}, algorithm=ALGORITHMS["grpo"]))
    assert last(learned) > 0.9


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_digits_by_a_dense_reward_from_random_weights(make_config: MakeConfig, algorithm: str) -> None:
    learned = scores(make_config(**DIGITS, algorithm=ALGORITHMS[algorithm]))
    assert learned[0] < 0.02
    assert last(learned) > 0.15


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_by_a_sparse_reward_after_a_supervised_warm_up(make_config: MakeConfig, algorithm: str) -> None:
    learned = scores(make_config(**SUMS, algorithm=ALGORITHMS[algorithm]))
    assert 0.05 < learned[0] < 0.35
    assert last(learned) > 0.45
