"""DPPO: a mask by the change of a token's probability instead of a clip of the ratio (arXiv 2602.04879)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlt_trainer.algorithms.losses.inputs import LossInputs, TokenLoss
from rlt_trainer.algorithms.losses.policy import bounded_log_ratio, build_token_loss

MAX_RATIO = 20.0
"""Upper bound of the ratio if clip_ratio_c is None (compute_policy_loss_dppo_tv in verl 0.9.1)."""
EPSILON = 1e-8


def dppo_tv(inputs: LossInputs) -> TokenLoss:
    """-A min(r, c) log p, without gradient through min(r, c), where the total variation p - p_old is within the bounds.

    A token is left out if A > 0 and p - p_old > clip_ratio_high, or if A <= 0 and p_old - p > clip_ratio_low.
    """
    change = inputs.log_probs.detach().exp() - inputs.old_log_probs.exp()
    is_kept = torch.where(inputs.advantages > 0, change <= inputs.clip_ratio_high, change >= -inputs.clip_ratio_low)
    return _mask(inputs, is_kept)


def dppo_kl(inputs: LossInputs) -> TokenLoss:
    """As dppo_tv, with the KL divergence of two outcomes, the token and all others, in place of the total variation."""
    log_probs = inputs.log_probs.detach()
    probs = log_probs.exp()
    old = inputs.old_log_probs.exp()
    others = ((1 - old + EPSILON) / (1 - probs + EPSILON)).log()
    divergence = old * (inputs.old_log_probs - log_probs) + (1 - old) * others
    rising = (divergence <= inputs.clip_ratio_high) | (probs <= old)
    falling = (divergence <= inputs.clip_ratio_low) | (probs >= old)
    return _mask(inputs, torch.where(inputs.advantages > 0, rising, falling))


def _mask(inputs: LossInputs, is_kept: Tensor) -> TokenLoss:
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.detach().exp()
    bound = MAX_RATIO if inputs.clip_ratio_c is None else inputs.clip_ratio_c
    loss = -inputs.advantages * ratio.clamp(max=bound) * inputs.log_probs * is_kept
    return build_token_loss(loss, inputs, ~is_kept, is_kept & (ratio > bound), kl=-log_ratio)
