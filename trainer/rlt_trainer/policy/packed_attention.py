"""Attention within packed sequences. With context parallelism each rank has a part of the tokens."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from rlt_trainer.policy.context_parallel import heads_to_tokens, tokens_to_heads
from rlt_trainer.policy.model_inputs import segments

CHECKS_HEADS = "enable_gqa" in inspect.signature(varlen_attn).parameters
"""Whether torch's operator requires a flag for keys with fewer heads than queries. In torch 2.11 it has no flag."""
NAME = "rlt_packed"
"""The name in transformers (attn_implementation). transformers builds no mask for names that it does not know."""


@dataclass(frozen=True)
class Packing:
    """The layout of the packed sequences. Models pass it to attention in their keyword arguments.

    It is built once for each forward pass: a layer that built a tensor from Python numbers would synchronize host and
    device.
    """

    lengths: tuple[int, ...]
    """Number of tokens of each sequence, over all ranks of the group."""
    ends: Tensor
    """[sequences + 1], int32, on the device: 0 and the end of each sequence (cu_seqlens)."""
    max_length: int
    """Number of tokens of the longest sequence."""
    group: dist.ProcessGroup | None
    """The ranks that share the sequences. None: this rank only."""

    @classmethod
    def of(cls, lengths: tuple[int, ...], group: dist.ProcessGroup | None, device: torch.device) -> Self:
        """Build the layout of sequences with `lengths` tokens on `device`."""
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        return cls(lengths, ends, max(lengths), group)


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
    """Causal attention within each sequence. query: [1, heads, n, d]; key, value: [1, kv heads, n, d].

    n: this rank's tokens. Returns [1, n, heads, d]. Raises ValueError for attention with soft caps or sinks.
    """
    assert attention_mask is None
    if packing is None or softcap is not None or s_aux is not None:
        raise ValueError(
            f"model.useRemovePadding does not work with {type(module).__name__}: its attention has soft caps or sinks, "
            "or does not pass keyword arguments on. Set it to false."
        )
    if packing.group is not None:
        query, key, value = (tokens_to_heads(part, packing.group) for part in (query, key, value))
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        result = _flash(query, key, value, packing, scaling, sliding_window)
    else:
        result = _sequence_by_sequence(query, key, value, packing, scaling, sliding_window)
    if packing.group is not None:
        result = heads_to_tokens(result, packing.group)
    return result.transpose(1, 2).contiguous(), None


def _flash(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None, window: int | None
) -> Tensor:
    """FlashAttention for variable lengths in torch. CUDA and 16-bit dtypes only."""
    options: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if CHECKS_HEADS else {}
    tokens_first = [part[0].transpose(0, 1).contiguous() for part in (query, key, value)]
    result = varlen_attn(
        tokens_first[0],
        tokens_first[1],
        tokens_first[2],
        packing.ends,
        packing.ends,
        packing.max_length,
        packing.max_length,
        scale=scaling,
        window_size=(-1 if window is None else window - 1, 0),
        **options,
    )
    assert isinstance(result, Tensor)
    return result.transpose(0, 1)[None]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the compiler would unroll the loop for each count
def _sequence_by_sequence(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None, window: int | None
) -> Tensor:
    """Attention for each sequence separately: on CPUs, and in 32 bits."""
    results = []
    for part in segments(packing.lengths):
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
