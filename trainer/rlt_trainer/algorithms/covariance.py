"""The tokens whose probability rises most with their advantage, for Clip-Cov and KL-Cov (arXiv 2505.22617)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Choice = Callable[[Tensor, int], Tensor]
"""Maps the covariances of N tokens [N] and the number of tokens to choose to those tokens: [N], bool."""


def select_by_covariance(
    advantages: Tensor, log_probs: Tensor, mask: Tensor, groups: Tensor, share: float, choose: Choice
) -> Tensor:
    """Select at most the `share` of each group's tokens, and at least one: [S, T], bool.

    advantages, log_probs: [S, T]; mask: [S, T], bool, the tokens to select from; groups: [S], the mini-batch of each
    row. A token's covariance is (A - mean A) (log p - mean log p) with the means over its group. With all rows of all
    ranks, the result does not depend on how they are split.
    """
    selected = torch.zeros_like(mask)
    for group in sorted(set(groups.tolist())):
        tokens = mask & (groups == group)[:, None]
        count = int(tokens.count_nonzero())
        if count == 0:
            continue
        deviations = (each[tokens].double() for each in (advantages, log_probs))
        from_advantages, from_log_probs = (each - each.mean() for each in deviations)
        selected[tokens] = choose(from_advantages * from_log_probs, max(int(share * count), 1))
    return selected


def choose_highest(covariances: Tensor, count: int) -> Tensor:
    """Choose the `count` highest covariances: compute_policy_loss_kl_cov in verl 0.9.1. The earlier token of equals."""
    chosen = torch.zeros_like(covariances, dtype=torch.bool)
    chosen[covariances.argsort(descending=True, stable=True)[:count]] = True
    return chosen


def choose_between(low: float, high: float, keys: np.random.Generator) -> Choice:
    """Return a choice of at most `count` tokens with a covariance between `low` and `high`, at random.

    compute_policy_loss_clip_cov in verl 0.9.1. `keys` gives each token its random number, and the lowest are chosen: a
    token near a bound changes no other choice.
    """

    def choose(covariances: Tensor, count: int) -> Tensor:
        numbers = torch.from_numpy(keys.random(len(covariances)))
        is_between = (covariances > low) & (covariances < high)
        return choose_highest(-numbers.masked_fill(~is_between, 2.0), count) & is_between

    return choose
