"""Sequences as a model takes them: padded, or packed one after the other without padding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences


@dataclass(frozen=True)
class ModelInputs:
    """One forward pass over sequences, and where it speaks of their M response tokens, counted row by row."""

    tokens: Tensor
    """[B, L], int64; packed: [1, N]"""
    position_ids: Tensor
    """The same shape, counted from 0 in every sequence."""
    attention_mask: Tensor | None
    """[B, L], int64. None when packed: `lengths` says where a sequence ends."""
    before: Tensor
    """[M], int64: the place before each response token, in the flattened tokens. There the model predicts it."""
    targets: Tensor
    """[M], int64: the response tokens."""
    lengths: tuple[int, ...]
    """Tokens of each sequence, for packed ones."""


def padded_inputs(sequences: Sequences) -> ModelInputs:
    """One row for each sequence, as wide as the widest prompt and the widest response."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    rows, places = sequences.response_attention.nonzero(as_tuple=True)
    return ModelInputs(
        tokens=torch.cat([sequences.prompts, sequences.responses], dim=-1),
        position_ids=position_ids(mask),
        attention_mask=mask.long(),
        before=rows * mask.shape[1] + sequences.prompts.shape[1] + places - 1,
        targets=sequences.responses[sequences.response_attention],
        lengths=(),
    )


def packed_inputs(sequences: Sequences, *, multiple: int = 1) -> ModelInputs:
    """All sequences one after the other, and one of padding that makes the length a multiple of `multiple`."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    tokens = torch.cat([sequences.prompts, sequences.responses], dim=-1)[mask]
    positions = position_ids(mask)[mask]
    is_response = torch.cat([torch.zeros_like(sequences.prompt_mask), sequences.response_attention], dim=-1)[mask]
    lengths = mask.sum(-1).tolist()
    if rest := -len(tokens) % multiple:
        lengths.append(rest)
        filler = torch.arange(rest, device=tokens.device)
        tokens, positions = torch.cat([tokens, torch.zeros_like(filler)]), torch.cat([positions, filler])
    return ModelInputs(
        tokens=tokens[None],
        position_ids=positions[None],
        attention_mask=None,
        before=is_response.nonzero().squeeze(-1) - 1,
        targets=sequences.responses[sequences.response_attention],
        lengths=tuple(lengths),
    )


def position_ids(mask: Tensor) -> Tensor:
    """Positions [B, L] that count from 0 at the first token that is no padding, for `mask` [B, L]."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def segments(lengths: tuple[int, ...]) -> list[slice]:
    """Where each of the packed sequences lies."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return [slice(start, end) for start, end in pairwise(ends)]
