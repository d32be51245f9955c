"""Advantage estimators: how much better a response, or a token of it, is than expected."""

from __future__ import annotations

from collections.abc import Callable

from rlt_trainer.algorithms.advantages.discounted import gae, reinforce_plus_plus, remax
from rlt_trainer.algorithms.advantages.grouped import grpo, grpo_passk, opo, reinforce_plus_plus_baseline, rloo
from rlt_trainer.algorithms.advantages.inputs import AdvantageInputs, Advantages, place_at_last_token

__all__ = [
    "ESTIMATORS",
    "NEEDS_BASELINES",
    "AdvantageInputs",
    "Advantages",
    "Estimator",
    "place_at_last_token",
]

Estimator = Callable[[AdvantageInputs], Advantages]

ESTIMATORS: dict[str, Estimator] = {
    "grpo": grpo,
    "gae": gae,
    "rloo": rloo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
    "remax": remax,
    "opo": opo,
    "grpo_passk": grpo_passk,
}
"""Estimators by verl's names (verl 0.9.1, AdvantageEstimator)."""
NEEDS_BASELINES = frozenset({"remax"})
"""Estimators that need the scores of greedy responses."""
