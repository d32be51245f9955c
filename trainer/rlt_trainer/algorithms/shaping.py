"""Reward shaping of DAPO (arXiv 2503.14476): the overlong penalty and the filter of groups."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_overlong_penalty(
    lengths: Tensor, *, max_response_length: int, buffer_length: int, penalty_factor: float
) -> Tensor:
    """Compute the penalty to add to the scores of long responses: [B] from lengths [B], never above 0.

    It is linear, from 0 at max_response_length - buffer_length tokens to -penalty_factor at max_response_length (DAPO,
    equation 13; verl's overlong_buffer).
    """
    excess = lengths - (max_response_length - buffer_length)
    return -(excess.clamp(min=0) / buffer_length * penalty_factor)


def filter_groups(metric: Tensor, groups: Tensor) -> Tensor:
    """Select the responses that dynamic sampling keeps: [B] bool.

    metric: [B], NaN for a response whose reward failed; groups: [B], int64. A group is kept if its metrics differ, or
    if it has only one response (verl's recipe of DAPO). A group whose metrics are all NaN is removed.
    """
    finite = metric.isfinite()
    index = torch.unique(groups, return_inverse=True)[1]
    size = torch.bincount(index)[index]
    highest = torch.full_like(metric, -torch.inf).scatter_reduce(0, index, metric.where(finite, -torch.inf), "amax")
    lowest = torch.full_like(metric, torch.inf).scatter_reduce(0, index, metric.where(finite, torch.inf), "amin")
    return (highest > lowest)[index] | ((size == 1) & finite)
