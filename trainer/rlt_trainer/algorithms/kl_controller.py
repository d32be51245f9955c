"""The KL term in the reward, and the controller of its coefficient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rlt_api.blocks.algorithm import KlEstimator
from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.masking import apply_mask, row_means

MAX_ERROR = 0.2
"""The relative error is clamped to +- this."""


class KlController:
    """The coefficient: fixed, or adapted to bring the divergence to `target` (arXiv 1909.08593, section 2.2)."""

    def __init__(
        self,
        kind: Literal["fixed", "adaptive"] = "fixed",
        coefficient: float = 0.001,
        *,
        target: float = 0.1,
        horizon: int = 10000,
    ) -> None:
        self.coefficient = coefficient
        self._kind = kind
        self._target = target
        self._horizon = horizon

    def update(self, kl: float, responses: int) -> None:
        """Update after `responses` responses with mean divergence `kl`: AdaptiveKLController in verl 0.9.1."""
        if self._kind == "adaptive":
            error = min(max(kl / self._target - 1, -MAX_ERROR), MAX_ERROR)
            self.coefficient *= 1 + error * responses / self._horizon

    def state_dict(self) -> dict[str, float]:
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.coefficient = state["coefficient"]


@dataclass(frozen=True)
class KlPenalty:
    """Rewards after the KL term."""

    token_rewards: Tensor
    """[B, T]"""
    kl: float
    """Mean over responses of the mean over their tokens: verl's actor/reward_kl_penalty."""


def apply_kl_penalty(
    token_rewards: Tensor,
    *,
    log_probs: Tensor,
    ref_log_probs: Tensor,
    mask: Tensor,
    coefficient: float,
    estimator: KlEstimator = "kl",
    convention: ConventionName = "verl",
) -> KlPenalty:
    """Return r - coefficient * kl for each token: apply_kl_penalty in verl 0.9.1. All [B, T].

    log_probs: under the policy at the start of the step. The mean divergence excludes responses without tokens.
    """
    divergence = apply_mask(kl_divergence(log_probs, ref_log_probs, estimator, convention=convention), mask)
    means = row_means(divergence, mask)[mask.any(-1)]
    return KlPenalty(
        apply_mask(token_rewards, mask) - coefficient * divergence, float(means.mean()) if len(means) else 0.0
    )
