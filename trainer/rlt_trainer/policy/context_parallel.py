"""Ulysses context parallelism (arXiv 2309.14509): ranks split the tokens, and in attention the heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Exchange = Callable[[Tensor, dist.ProcessGroup], Tensor]


def tokens_to_heads(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Exchange [1, heads, n, d], this rank's tokens, for [1, heads / ranks, n * ranks, d], this rank's heads.

    If there are fewer heads than ranks (keys and values of grouped queries), they are repeated: each rank gets one.
    Raises ValueError if neither number divides the other.
    """
    ranks = group.size()
    heads = part.shape[1]
    if heads < ranks and ranks % heads == 0:
        part = part.repeat_interleave(ranks // heads, dim=1)
        heads = ranks
    if heads % ranks:
        raise ValueError(
            f"training.contextParallelSize {ranks} and the model's {heads} attention heads: neither divides the other. "
            "Use a size that divides the number of heads."
        )
    swapped: Tensor = _ReversibleExchange.apply(part, group, _to_heads, _to_tokens)  # type: ignore[no-untyped-call]
    return swapped


def heads_to_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Invert tokens_to_heads: from [1, heads / ranks, n * ranks, d] to [1, heads, n, d]."""
    swapped: Tensor = _ReversibleExchange.apply(part, group, _to_tokens, _to_heads)  # type: ignore[no-untyped-call]
    return swapped


def gather_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Gather [n, ...], values for each of this rank's tokens, to [n * ranks, ...].

    All ranks must compute the same loss from it: in the backward pass, each rank keeps its tokens' gradient.
    """
    gathered: Tensor = _GatherTokens.apply(part, group)  # type: ignore[no-untyped-call]
    return gathered


class _ReversibleExchange(torch.autograd.Function):
    """An exchange in the forward pass, and its inverse in the backward pass."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup, exchange: Exchange, inverse: Exchange) -> Tensor:
        ctx.group = group
        ctx.inverse = inverse
        return exchange(part, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.inverse(gradient, ctx.group), None, None, None


class _GatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        ctx.size = len(part)
        gathered = part.new_empty(len(part) * group.size(), *part.shape[1:])
        dist.all_gather_into_tensor(gathered, part.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        start = ctx.group.rank() * ctx.size
        return gradient[start : start + ctx.size], None


def _to_heads(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    ranks = group.size()
    _, heads, n, d = part.shape  # all heads, this rank's tokens
    for_rank = part.reshape(ranks, heads // ranks, n, d)  # [ranks, heads / ranks, n, d]: rank r's heads
    from_rank = _all_to_all(for_rank, group)  # the same shape: this rank's heads of rank r's tokens
    return from_rank.transpose(0, 1).reshape(1, heads // ranks, ranks * n, d)


def _to_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    ranks = group.size()
    _, heads, tokens, d = part.shape  # this rank's heads, all tokens
    n = tokens // ranks
    for_rank = part.reshape(heads, ranks, n, d).transpose(0, 1)  # [ranks, heads, n, d]: rank r's tokens
    from_rank = _all_to_all(for_rank, group)  # the same shape: rank r's heads of this rank's tokens
    return from_rank.reshape(1, ranks * heads, n, d)


def _all_to_all(for_rank: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Send for_rank[r] to rank r. Returns the same shape: entry r is from rank r."""
    from_rank = torch.empty(for_rank.shape, dtype=for_rank.dtype, device=for_rank.device)
    dist.all_to_all_single(from_rank, for_rank.contiguous(), group=group)
    return from_rank
