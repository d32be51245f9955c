"""Ulysses (arXiv 2309.14509): ranks share the tokens of each pass, and within the attention the heads instead."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def tokens_to_heads(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """From [1, heads, n, d], this rank's tokens, to [1, heads / ranks, n * ranks, d], this rank's heads.

    Fewer heads than ranks (keys and values of grouped queries) are repeated until each rank has one.
    """
    ranks, heads = group.size(), part.shape[1]
    if heads < ranks and ranks % heads == 0:
        part, heads = part.repeat_interleave(ranks // heads, dim=1), ranks
    if heads % ranks:
        raise ValueError(
            f"training.contextParallelSize {ranks} does not divide the model's {heads} attention heads, nor they it."
        )
    swapped: Tensor = _TokensToHeads.apply(part, group)  # type: ignore[no-untyped-call]
    return swapped


def heads_to_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The way back: from [1, heads / ranks, n * ranks, d] to [1, heads, n, d]."""
    swapped: Tensor = _HeadsToTokens.apply(part, group)  # type: ignore[no-untyped-call]
    return swapped


def gather_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """From [n], of this rank's tokens, to [n * ranks].

    Each rank must make the same loss of it: backward, each keeps the gradient of its own tokens.
    """
    gathered: Tensor = _GatherTokens.apply(part, group)  # type: ignore[no-untyped-call]
    return gathered


class _TokensToHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _to_heads(part, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _to_tokens(gradient, ctx.group), None


class _HeadsToTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _to_tokens(part, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _to_heads(gradient, ctx.group), None


class _GatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group, ctx.size = group, len(part)
        gathered = part.new_empty(len(part) * group.size())
        dist.all_gather_into_tensor(gathered, part.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        start = ctx.group.rank() * ctx.size
        return gradient[start : start + ctx.size], None


def _to_heads(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    _, heads, tokens, width = part.shape
    ranks = group.size()
    by_rank = part.reshape(ranks, heads // ranks, tokens, width)
    return _exchange(by_rank, group).transpose(0, 1).reshape(1, heads // ranks, ranks * tokens, width)


def _to_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    _, heads, tokens, width = part.shape
    ranks = group.size()
    by_rank = part.reshape(heads, ranks, tokens // ranks, width).transpose(0, 1)
    return _exchange(by_rank, group).reshape(1, ranks * heads, tokens // ranks, width)


def _exchange(by_rank: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Give each rank its entry [r] of the first dimension, and put what each rank gives in its place."""
    received = torch.empty(by_rank.shape, dtype=by_rank.dtype, device=by_rank.device)
    dist.all_to_all_single(received, by_rank.contiguous(), group=group)
    return received
