"""Attention over packed sequences: none sees another. With context parallelism each rank has a part of the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from rlt_trainer.policy.context_parallel import heads_to_tokens, tokens_to_heads
from rlt_trainer.policy.model_inputs import segments

NAME = "rlt_packed"
"""Under which transformers knows it (attn_implementation). It makes no mask for a name that it has no mask for."""


@dataclass(frozen=True)
class Packing:
    """What the attention must know beyond its tensors. Models hand it down in their keyword arguments."""

    lengths: tuple[int, ...]
    """Tokens of each sequence, over all ranks of the group."""
    group: dist.ProcessGroup | None
    """The ranks that share the sequences. None: this one alone."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packing: Packing | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence. query: [1, heads, n, d]; key, value: [1, kv heads, n, d], n of this rank.

    Returns [1, n, heads, d]. Raises ValueError for models whose attention is more than that.
    """
    assert attention_mask is None
    if packing is None or softcap is not None or s_aux is not None:
        raise ValueError(
            f"model.useRemovePadding does not work with {type(module).__name__}: its attention has soft caps or sinks, "
            "or does not hand arguments down. Leave it out."
        )
    if packing.group is not None:
        query, key, value = (tokens_to_heads(part, packing.group) for part in (query, key, value))
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        result = _flash(query, key, value, packing.lengths, scaling, sliding_window)
    else:
        result = _one_by_one(query, key, value, packing.lengths, scaling, sliding_window)
    if packing.group is not None:
        result = heads_to_tokens(result, packing.group)
    return result.transpose(1, 2).contiguous(), None


def _flash(
    query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...], scaling: float | None, window: int | None
) -> Tensor:
    """torch's FlashAttention of variable lengths. On CUDA only, in 16 bits only."""
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=query.device)
    tokens_first = [part[0].transpose(0, 1).contiguous() for part in (query, key, value)]
    result = varlen_attn(
        tokens_first[0],
        tokens_first[1],
        tokens_first[2],
        ends,
        ends,
        max(lengths),
        max(lengths),
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(result, Tensor)
    return result.transpose(0, 1)[None]


def _one_by_one(
    query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...], scaling: float | None, window: int | None
) -> Tensor:
    """Each sequence by itself: on CPUs, and in 32 bits."""
    results = []
    for part in segments(lengths):
        length = part.stop - part.start
        mask = None
        if window is not None and length > window:
            mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril().triu(1 - window)
        results.append(
            functional.scaled_dot_product_attention(
                query[:, :, part],
                key[:, :, part],
                value[:, :, part],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        )
    return torch.cat(results, dim=2)


AttentionInterface.register(NAME, packed_attention)
