"""The tokens with the highest entropy, from which alone the policy loss learns (arXiv 2506.01939)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlt_trainer.algorithms.masking import select


def select_top_entropy(entropy: Tensor, mask: Tensor, groups: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Select the `share` of each group's tokens with the highest entropy, and those as high as the lowest of them.

    entropy: [S, T], in nats; mask: [S, T], bool, the tokens to select from; groups: [S], the mini-batch of each row.
    Returns the selected tokens [S, T], bool, and the lowest entropy of each group with tokens.

    The threshold of a group of N tokens is number ceil((1 - share) (N - 1)), from 0, of their entropies in ascending
    order. So it selects what get_high_entropy_mask in TRL 1.16 (trl/trainer/grpo_trainer.py) selects, whose threshold
    is the interpolated quantile. With all rows of all ranks, the result does not depend on how they are split.
    """
    selected = torch.zeros_like(mask)
    thresholds = []
    for group in sorted(set(groups.tolist())):
        tokens = mask & (groups == group)[:, None]
        (values,) = select(tokens, entropy)
        if not len(values):
            continue
        rank = math.ceil(round((1 - share) * (len(values) - 1), 6))
        threshold = values.kthvalue(rank + 1).values
        selected |= tokens & (entropy >= threshold)
        thresholds.append(threshold)
    return selected, torch.stack(thresholds)
