"""The critic's loss per token."""

from __future__ import annotations

import torch
from torch import Tensor

from rlt_trainer.algorithms.losses.inputs import TokenLoss
from rlt_trainer.algorithms.masking import apply_mask


def value_loss(
    values: Tensor, *, old_values: Tensor, returns: Tensor, mask: Tensor, cliprange_value: float = 0.5
) -> TokenLoss:
    """Half the squared error, clipped: max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2. All [B, T].

    values: with gradient; old_values: at the start of the step. compute_value_loss in verl 0.9.1.
    The mean of its metric is verl's critic/vf_clipfrac.
    """
    values, old_values, returns = (apply_mask(each, mask) for each in (values, old_values, returns))
    bounded = values.clamp(old_values - cliprange_value, old_values + cliprange_value)
    plain = (values - returns).square()
    clipped = (bounded - returns).square()
    return TokenLoss(
        torch.maximum(plain, clipped) / 2, {"critic/vf_clipfrac": (clipped > plain).detach().to(values.dtype)}
    )
