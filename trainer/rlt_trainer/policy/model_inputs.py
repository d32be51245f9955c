"""Model inputs: sequences padded, or packed one after the other without padding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Sequences


@dataclass(frozen=True)
class ModelInputs:
    """Inputs of one forward pass, and the positions of the M response tokens in it, counted row by row."""

    tokens: Tensor
    """[B, L], int64; packed: [1, N]"""
    position_ids: Tensor
    """The same shape, counted from 0 in every sequence."""
    attention_mask: Tensor | None
    """[B, L], int64. None if packed: `lengths` separates the sequences."""
    before: Tensor
    """[M], int64: the position before each response token in the flattened tokens, where the model predicts it."""
    targets: Tensor
    """[M], int64: the response tokens."""
    lengths: tuple[int, ...]
    """Number of tokens of each sequence, if packed."""


def pad_inputs(sequences: Sequences) -> ModelInputs:
    """Build one row for each sequence, as wide as the widest prompt and the widest response together."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    rows, columns = sequences.response_attention.nonzero(as_tuple=True)
    return ModelInputs(
        tokens=torch.cat([sequences.prompts, sequences.responses], dim=-1).long(),
        position_ids=build_position_ids(mask),
        attention_mask=mask.long(),
        before=rows * mask.shape[1] + sequences.prompts.shape[1] + columns - 1,
        targets=sequences.responses[sequences.response_attention].long(),
        lengths=(),
    )


def pack_inputs(sequences: Sequences, *, multiple: int = 1) -> ModelInputs:
    """Concatenate all sequences, and one of padding that makes the length a multiple of `multiple`."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    tokens = torch.cat([sequences.prompts, sequences.responses], dim=-1)[mask].long()
    positions = build_position_ids(mask)[mask]
    is_response = torch.cat([torch.zeros_like(sequences.prompt_mask), sequences.response_attention], dim=-1)[mask]
    lengths = mask.sum(-1).tolist()
    if rest := -len(tokens) % multiple:
        lengths.append(rest)
        filler = torch.arange(rest, device=tokens.device)
        tokens = torch.cat([tokens, torch.zeros_like(filler)])
        positions = torch.cat([positions, filler])
    return ModelInputs(
        tokens=tokens[None],
        position_ids=positions[None],
        attention_mask=None,
        before=is_response.nonzero().squeeze(-1) - 1,
        targets=sequences.responses[sequences.response_attention].long(),
        lengths=tuple(lengths),
    )


def build_position_ids(mask: Tensor) -> Tensor:
    """Return positions [B, L] that count from 0 at the first token of `mask` [B, L]."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def segments(lengths: tuple[int, ...]) -> list[slice]:
    """Return the slice of each packed sequence."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return [slice(start, end) for start, end in pairwise(ends)]
