"""Inputs and outputs of advantage estimators. A user-defined estimator maps AdvantageInputs to Advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.masking import apply_mask


@dataclass(frozen=True)
class AdvantageInputs:
    """A step's whole batch: B responses of up to T tokens.

    Rewards and values outside the mask are set to 0 here, so that an estimator receives no NaN at padding. A response
    with an empty mask (its reward failed) is not a member of its group.
    """

    token_rewards: Tensor
    """[B, T]"""
    mask: Tensor
    """[B, T], bool: the tokens that the policy sampled."""
    groups: Tensor
    """[B], int64: equal for responses to the same prompt. Any numbers, order and group sizes."""
    values: Tensor | None = None
    """[B, T]: the critic's values, for gae."""
    baselines: Tensor | None = None
    """[B]: the score of the greedy response to the same prompt, for remax."""
    gamma: float = 1.0
    """Discount factor of later rewards, for gae and reinforce_plus_plus."""
    lam: float = 1.0
    """Lambda of gae."""
    norm_by_std: bool = True
    """Whether grpo and grpo_passk divide by the group's standard deviation. False: Dr. GRPO."""
    convention: ConventionName = "verl"

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_rewards", apply_mask(self.token_rewards, self.mask))
        if self.values is not None:
            object.__setattr__(self, "values", apply_mask(self.values, self.mask))


@dataclass(frozen=True)
class Advantages:
    """The result of an estimator. Both are 0 outside the mask."""

    advantages: Tensor
    """[B, T]"""
    returns: Tensor
    """[B, T]: the targets of the critic."""


def place_at_last_token(scores: Tensor, mask: Tensor) -> Tensor:
    """Return token rewards [B, T] with each response's score [B] at its last token in `mask`, 0 elsewhere."""
    positions = torch.arange(mask.shape[-1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(-1, keepdim=True)
    return apply_mask(scores[:, None].expand(mask.shape), mask & (positions == last))
