"""Sums and means over the tokens that count. What lies outside of a mask, NaN included, reaches no result."""

from __future__ import annotations

import torch
from torch import Tensor


def keep(values: Tensor, mask: Tensor) -> Tensor:
    """`values` where `mask` holds and 0 elsewhere; the gradient is 0 there, too. Both of one shape."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of `values` [B, T] where `mask` [B, T] holds: a scalar."""
    return keep(values, mask).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of `values` [B, T] where `mask` [B, T] holds: a scalar, 0 where nothing does."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def row_sums(values: Tensor, mask: Tensor) -> Tensor:
    """The sum of each response's tokens: [B] from [B, T]."""
    return keep(values, mask).sum(-1)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of each response's tokens: [B] from [B, T], 0 where a response has none."""
    return row_sums(values, mask) / mask.sum(-1).clamp(min=1)


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-8) over all tokens of the mask, 0 outside of it: [B, T].

    The variance is unbiased: masked_whiten in verl 0.9.1, verl/utils/torch_functional.py.
    """
    deviations = keep(values - masked_mean(values, mask), mask)
    variance = deviations.square().sum() / (mask.sum() - 1).clamp(min=1)
    return deviations * torch.rsqrt(variance + 1e-8)
