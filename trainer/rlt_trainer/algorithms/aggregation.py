"""From the losses of tokens to one number, with denominators that the caller counts over the whole mini-batch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

AggregationMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of `values` [B, T] where `mask` [B, T] holds. NaN elsewhere harms neither it nor its gradient."""
    return _keep(values, mask).sum()


def aggregate(
    values: Tensor, mask: Tensor, mode: AggregationMode, *, total_tokens: int, total_sequences: int
) -> Tensor:
    """This part's share of a mini-batch's loss, a scalar: the shares of all parts add up to the loss.

    values: [B, T], a loss per token; mask: [B, T], the response's tokens.
    total_tokens, total_sequences: counts over the whole mini-batch, over all ranks and micro-batches. They make loss
    and gradient independent of how the mini-batch is split.

    token-mean: every token of the mini-batch weighs the same (DAPO, arXiv 2503.14476).
    seq-mean-token-sum: sums within responses, mean over responses.
    seq-mean-token-mean: means within responses, mean over responses (GRPO, arXiv 2402.03300).
    The names and formulas are those of agg_loss in verl 0.9.1, verl/trainer/ppo/core_algos.py.
    """
    match mode:
        case "token-mean":
            return masked_sum(values, mask) / total_tokens
        case "seq-mean-token-sum":
            return masked_sum(values, mask) / total_sequences
        case "seq-mean-token-mean":
            lengths = mask.sum(-1).clamp(min=1)
            return (_keep(values, mask).sum(-1) / lengths).sum() / total_sequences


def _keep(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))
