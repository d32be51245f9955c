"""Aggregation of token losses to a scalar, with denominators that the caller counts over the whole mini-batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rlt_trainer.algorithms.masking import masked_sum, row_means

AggregationMode = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def aggregate(
    values: Tensor,
    mask: Tensor,
    mode: AggregationMode,
    *,
    total_tokens: int,
    total_sequences: int,
    loss_scale_factor: float | None = None,
) -> Tensor:
    """Return the share of a micro-batch in the loss of its mini-batch, a scalar. The shares add up to the loss.

    values: [B, T], a loss per token; mask: [B, T], the response's tokens.
    total_tokens, total_sequences: counts over the whole mini-batch, over all ranks and micro-batches. They make loss
    and gradient independent of how the mini-batch is split. A mini-batch without tokens has loss 0.
    loss_scale_factor: only for seq-mean-token-sum-norm. A constant of the run: the maximum length of a response.

    token-mean: every token of the mini-batch has the same weight (DAPO, arXiv 2503.14476).
    seq-mean-token-sum: sums within responses, mean over responses.
    seq-mean-token-mean: means within responses, mean over responses (GRPO, arXiv 2402.03300).
    seq-mean-token-sum-norm: seq-mean-token-sum divided by loss_scale_factor (Dr. GRPO, arXiv 2503.20783).
    The names and formulas are from agg_loss in verl 0.9.1, verl/trainer/ppo/core_algos.py.
    """
    match mode:
        case "token-mean":
            return masked_sum(values, mask) / max(total_tokens, 1)
        case "seq-mean-token-sum":
            return masked_sum(values, mask) / max(total_sequences, 1)
        case "seq-mean-token-mean":
            return row_means(values, mask).sum() / max(total_sequences, 1)
        case "seq-mean-token-sum-norm":
            assert loss_scale_factor is not None, "seq-mean-token-sum-norm needs loss_scale_factor"
            return masked_sum(values, mask) / max(total_sequences, 1) / loss_scale_factor
