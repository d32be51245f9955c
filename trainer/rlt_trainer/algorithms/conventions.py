"""Conventions: the constants and choices in which verl and TRL differ for the same formula."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

ConventionName = Literal["verl", "trl"]


@dataclass(frozen=True)
class Convention:
    """Choices without a field. docs/algorithms.md lists the differences."""

    std_epsilon: float
    """Added to a group's standard deviation (grpo, grpo_passk)."""
    lone_score_is_advantage: bool
    """Whether the advantage of a response that is alone in its group is its score. Otherwise it is 0."""
    log_ratio_bound: float
    """Log ratios of probabilities are clamped to +- this."""
    sequence_log_ratio_bound: float
    """gspo: upper bound of a response's log ratio."""
    k3_input_bound: float
    """low_var_kl (k3): ref - log_probs is clamped to +- this."""
    k3_bound: float
    """low_var_kl (k3): its value is clamped to +- this."""
    kl_is_weighted: bool
    """Whether the KL term in the loss is multiplied by the ratio, so that its gradient is unbiased off-policy."""
    cispo_has_upper_bound_only: bool
    """Whether cispo bounds the ratio by clip_ratio_high itself, from above only. Otherwise it is a distance from 1."""


CONVENTIONS: dict[ConventionName, Convention] = {
    # verl 0.9.1: verl/trainer/ppo/core_algos.py
    "verl": Convention(
        std_epsilon=1e-6,
        lone_score_is_advantage=True,
        log_ratio_bound=20.0,
        sequence_log_ratio_bound=10.0,
        k3_input_bound=20.0,
        k3_bound=10.0,
        kl_is_weighted=False,
        cispo_has_upper_bound_only=False,
    ),
    # trl 1.16.0: GRPOTrainer (trl/trainer/grpo_trainer.py) and RLOOTrainer, use_bias_correction_kl at its default
    "trl": Convention(
        std_epsilon=1e-4,
        lone_score_is_advantage=False,
        log_ratio_bound=inf,
        sequence_log_ratio_bound=inf,
        k3_input_bound=inf,
        k3_bound=inf,
        kl_is_weighted=True,
        cispo_has_upper_bound_only=True,
    ),
}
