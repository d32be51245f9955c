"""Masked sums and means. Values outside the mask, NaN included, do not affect any result."""

from __future__ import annotations

import torch
from torch import Tensor


def apply_mask(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values` where `mask` is True, and 0 elsewhere, with gradient 0. Both have the same shape."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum of `values` [B, T] where `mask` [B, T] is True: a scalar."""
    return apply_mask(values, mask).sum()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` [B, T] where `mask` [B, T] is True: a scalar, 0 if the mask is empty."""
    return masked_sum(values, mask) / mask.count_nonzero().clamp(min=1)  # much faster than sum() on CPUs


def row_sums(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over the tokens of each response: [B] from [B, T]."""
    return apply_mask(values, mask).sum(-1)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens of each response: [B] from [B, T], 0 for a response without tokens."""
    return row_sums(values, mask) / mask.to(values.dtype).sum(-1).clamp(min=1)


def select(mask: Tensor, *values: Tensor) -> list[Tensor]:
    """Return each of `values` [B, T] where `mask` [B, T] is True: [N]. On CPUs much faster than `values[mask]`."""
    positions = mask.flatten().nonzero().squeeze(-1)
    return [each.flatten().index_select(0, positions) for each in values]


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    """Return (x - mean) / sqrt(variance + 1e-8) over all tokens of the mask, 0 outside it: [B, T].

    The variance is unbiased: masked_whiten in verl 0.9.1, verl/utils/torch_functional.py.
    """
    deviations = apply_mask(values - masked_mean(values, mask), mask)
    variance = deviations.square().sum() / (mask.count_nonzero() - 1).clamp(min=1)
    return deviations * torch.rsqrt(variance + 1e-8)
