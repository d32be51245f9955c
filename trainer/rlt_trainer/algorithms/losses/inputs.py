"""What losses take and give. A user's own policy loss is a function from LossInputs to TokenLoss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlt_trainer.algorithms.conventions import CONVENTIONS, Convention, ConventionName
from rlt_trainer.algorithms.masking import keep


@dataclass(frozen=True)
class LossInputs:
    """A micro-batch: B whole responses of up to T tokens. What lies outside of the mask becomes 0 here."""

    log_probs: Tensor
    """[B, T]: under the policy as it is now, with gradient."""
    old_log_probs: Tensor
    """[B, T]: under the policy that the step began with."""
    advantages: Tensor
    """[B, T]"""
    mask: Tensor
    """[B, T], bool: the tokens that the policy chose."""
    weights: Tensor | None = None
    """[B, T]: what each token's loss is multiplied by (rollout correction). None: 1."""
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    """The ratio is kept within 1 - clip_ratio_low and 1 + clip_ratio_high."""
    clip_ratio_c: float | None = None
    """vanilla: the bound of the ratio where the advantage is negative. None: no bound."""
    tau_pos: float = 1.0
    tau_neg: float = 1.05
    """sapo: steepness for advantages above 0 and for the others."""
    convention: ConventionName = "verl"

    def __post_init__(self) -> None:
        for name in ("log_probs", "old_log_probs", "advantages", "weights"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, keep(value, self.mask))

    @property
    def bounds(self) -> Convention:
        return CONVENTIONS[self.convention]

    @property
    def log_ratio(self) -> Tensor:
        """[B, T]: log(probability now / probability then), with gradient."""
        return self.log_probs - self.old_log_probs

    def weighted(self, loss: Tensor) -> Tensor:
        """`loss` [B, T] times the weights."""
        return loss if self.weights is None else loss * self.weights


@dataclass(frozen=True)
class TokenLoss:
    """What a loss of the policy, or of the critic, says of each token."""

    loss: Tensor
    """[B, T], with gradient, the weights applied."""
    metrics: dict[str, Tensor]
    """Name -> [B, T], without gradient: its mean over all tokens of the mini-batch is reported."""
