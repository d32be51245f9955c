"""Where peers compute the same thing differently: each convention is the numbers of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

ConventionName = Literal["verl", "trl"]


@dataclass(frozen=True)
class Convention:
    """What no setting of its own says. docs/algorithms.md shows the differences."""

    std_epsilon: float
    """Added to a group's standard deviation (grpo, grpo_passk)."""
    keeps_lone_scores: bool
    """Whether a response without others to compare with keeps its score as advantage. Otherwise that is 0."""
    log_ratio_bound: float
    """Logarithms of ratios of probabilities are kept within +- this."""
    sequence_log_ratio_bound: float
    """gspo: the logarithm of a response's ratio is at most this."""
    k3_input_bound: float
    """low_var_kl (k3): ref - log_probs is kept within +- this."""
    k3_bound: float
    """low_var_kl (k3): its value is kept within +- this."""
    kl_is_weighted: bool
    """Whether the KL term in the loss is multiplied by the ratio, which makes its gradient unbiased off-policy."""
    cispo_is_capped_only: bool
    """Whether cispo's clip_ratio_high is the ratio's bound itself, without a lower one, and not a distance from 1."""


CONVENTIONS: dict[ConventionName, Convention] = {
    # verl 0.9.1: verl/trainer/ppo/core_algos.py
    "verl": Convention(
        std_epsilon=1e-6,
        keeps_lone_scores=True,
        log_ratio_bound=20.0,
        sequence_log_ratio_bound=10.0,
        k3_input_bound=20.0,
        k3_bound=10.0,
        kl_is_weighted=False,
        cispo_is_capped_only=False,
    ),
    # trl 1.16.0: GRPOTrainer (trl/trainer/grpo_trainer.py) and RLOOTrainer, use_bias_correction_kl at its default
    "trl": Convention(
        std_epsilon=1e-4,
        keeps_lone_scores=False,
        log_ratio_bound=inf,
        sequence_log_ratio_bound=inf,
        k3_input_bound=inf,
        k3_bound=inf,
        kl_is_weighted=True,
        cispo_is_capped_only=True,
    ),
}
