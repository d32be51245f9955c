"""What estimators of advantages take and give. A user's own estimator is a function from the one to the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.masking import keep


@dataclass(frozen=True)
class AdvantageInputs:
    """A step's whole batch: B responses of up to T tokens.

    Rewards and values outside of the mask become 0 here, so that an estimator meets no NaN of a padding token. A
    response whose mask is False throughout (its reward failed) is not a member of its group.
    """

    token_rewards: Tensor
    """[B, T]"""
    mask: Tensor
    """[B, T], bool: the tokens that the policy chose."""
    groups: Tensor
    """[B], int64: equal for responses to one prompt. Any numbers, in any order, groups of any sizes."""
    values: Tensor | None = None
    """[B, T]: the critic's. For gae."""
    baselines: Tensor | None = None
    """[B]: the score of the greedy response to each one's prompt. For remax."""
    gamma: float = 1.0
    """Discount of later rewards. For gae and reinforce_plus_plus."""
    lam: float = 1.0
    """Lambda of gae."""
    norm_by_std: bool = True
    """Whether grpo and grpo_passk divide by the group's standard deviation. False: Dr. GRPO."""
    convention: ConventionName = "verl"

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_rewards", keep(self.token_rewards, self.mask))
        if self.values is not None:
            object.__setattr__(self, "values", keep(self.values, self.mask))


@dataclass(frozen=True)
class Advantages:
    """Both are 0 outside of the mask."""

    advantages: Tensor
    """[B, T]"""
    returns: Tensor
    """[B, T]: what a critic learns to say."""


def rewards_at_end(scores: Tensor, mask: Tensor) -> Tensor:
    """Token rewards [B, T] that hold each response's score [B] at its last token of `mask`, 0 elsewhere."""
    places = torch.arange(mask.shape[-1], device=mask.device)
    last = torch.where(mask, places, -1).amax(-1, keepdim=True)
    return keep(scores[:, None].expand(mask.shape), mask & (places == last))
