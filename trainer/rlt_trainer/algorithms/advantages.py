"""Advantages: how much better a response was than the others to its prompt."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-6
"""Added to the standard deviation (compute_grpo_outcome_advantage in verl 0.9.1)."""


def grpo_advantages(rewards: Tensor, mask: Tensor, *, group_size: int, norm_by_std: bool) -> Tensor:
    """Group-relative advantages [B, T] in float32: the same for all tokens of a response, 0 outside of `mask`.

    rewards: [B], responses to one prompt next to one another, `group_size` of them; mask: [B, T].
    A = (r - mean) / (std + 1e-6) within the group, std unbiased (GRPO, arXiv 2402.03300, in verl's convention: TRL adds
    1e-4). Without norm_by_std A = r - mean (Dr. GRPO, arXiv 2503.20783).
    A group of equal rewards has advantage 0.
    """
    assert group_size > 1, "a group of one has nothing to compare with"
    groups = rewards.float().view(-1, group_size)
    advantages = groups - groups.mean(-1, keepdim=True)
    if norm_by_std:
        advantages = advantages / (groups.std(-1, keepdim=True) + EPSILON)
    return torch.where(mask, advantages.reshape(-1, 1), 0.0)
