"""Inputs and outputs of losses. A user-defined policy loss maps LossInputs to TokenLoss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlt_trainer.algorithms.conventions import CONVENTIONS, Convention, ConventionName
from rlt_trainer.algorithms.masking import apply_mask


@dataclass(frozen=True)
class LossInputs:
    """A micro-batch: B complete responses of up to T tokens. Values outside the mask are set to 0 here."""

    log_probs: Tensor
    """[B, T]: under the current policy, with gradient."""
    old_log_probs: Tensor
    """[B, T]: under the policy at the start of the step."""
    advantages: Tensor
    """[B, T]"""
    mask: Tensor
    """[B, T], bool: the tokens that the policy sampled."""
    weights: Tensor | None = None
    """[B, T]: factor of each token's loss (rollout correction, topEntropyQuantile). None: 1."""
    is_selected: Tensor | None = None
    """[B, T], bool: the tokens that clip_cov and kl_cov treat differently. None: no token."""
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    """The ratio is clipped to 1 - clip_ratio_low and 1 + clip_ratio_high."""
    clip_ratio_c: float | None = None
    """vanilla: upper bound of the ratio for negative advantages. None: no bound."""
    tau_pos: float = 1.0
    tau_neg: float = 1.05
    """sapo: steepness for positive advantages (tau_pos) and for the others (tau_neg)."""
    ppo_kl_coef: float = 0.1
    """kl_cov: coefficient of the distance from the old policy."""
    convention: ConventionName = "verl"

    def __post_init__(self) -> None:
        for name in ("log_probs", "old_log_probs", "advantages", "weights"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, apply_mask(value, self.mask))

    @property
    def bounds(self) -> Convention:
        return CONVENTIONS[self.convention]

    @property
    def selected(self) -> Tensor:
        """[B, T], bool: the tokens that clip_cov and kl_cov treat differently."""
        return torch.zeros_like(self.mask) if self.is_selected is None else self.is_selected & self.mask

    @property
    def log_ratio(self) -> Tensor:
        """[B, T]: log(probability / old probability), with gradient."""
        return self.log_probs - self.old_log_probs

    def weighted(self, loss: Tensor) -> Tensor:
        """Multiply `loss` [B, T] by the weights."""
        return loss if self.weights is None else loss * self.weights


@dataclass(frozen=True)
class TokenLoss:
    """The loss of the policy or of the critic for each token."""

    loss: Tensor
    """[B, T], with gradient, multiplied by the weights."""
    metrics: dict[str, Tensor]
    """Name -> [B, T], without gradient. The mean over all tokens of the mini-batch is reported."""
