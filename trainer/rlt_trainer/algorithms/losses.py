"""Policy losses per token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PolicyLoss(NamedTuple):
    """All of them [B, T], to be aggregated by the caller."""

    loss: Tensor
    """With gradient."""
    clipped: Tensor
    """1.0 where the clip decided the loss, else 0.0. Its mean is verl's actor/pg_clipfrac."""
    kl: Tensor
    """old - current log-probability, clamped. Its mean is verl's actor/ppo_kl."""


def ppo_clip_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_ratio: float) -> PolicyLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, equation 7) as a loss: max(-A r, -A clip(r, 1 - c, 1 + c)).

    log_probs: [B, T], current and with gradient; old_log_probs: [B, T], when the step began; advantages: [B, T].
    r = exp(log_probs - old_log_probs), the difference clamped to +-20 as in verl 0.9.1 (compute_policy_loss_vanilla).
    """
    log_ratio = (log_probs - old_log_probs).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio)
    return PolicyLoss(
        loss=torch.maximum(plain, bounded),
        clipped=(bounded > plain).float().detach(),
        kl=-log_ratio.detach(),
    )
