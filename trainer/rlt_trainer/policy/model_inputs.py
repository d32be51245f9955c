"""Model inputs: sequences padded, or packed one after the other without padding.

Positions are computed on the host from the lengths: a selection by a mask would wait for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlt_trainer.batches.sequences import RowLengths, Sequences

Positions = NDArray[np.int64]
"""Positions on the host."""


@dataclass(frozen=True)
class ModelInputs:
    """Inputs of one forward pass, and the positions of the M response tokens in it, counted row by row."""

    tokens: Tensor
    """[B, L], int64; packed: [1, N]"""
    position_ids: Tensor
    """The same shape, counted from 0 in every sequence."""
    attention_mask: Tensor | None
    """[B, L], int64. None if packed: `lengths` separates the sequences."""
    before: Positions
    """[M]: the position before each response token in the flattened tokens, where the model predicts it. Ascending if
    packed."""
    targets: Tensor
    """[M], int64: the response tokens."""
    slots: Tensor
    """[M], int64: the position of each response token in the flattened responses [B, T]."""
    lengths: tuple[int, ...]
    """Number of tokens of each sequence, if packed."""


def pad_inputs(sequences: Sequences) -> ModelInputs:
    """Build one row for each sequence, as wide as the widest prompt and the widest response together."""
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], dim=-1)
    width = sequences.prompts.shape[1]
    starts = range(width, mask.numel(), mask.shape[1])  # of each response in the flattened tokens
    lengths = sequences.count_lengths()
    slots, targets = _find_targets(sequences, lengths)
    return ModelInputs(
        tokens=torch.cat([sequences.prompts, sequences.responses], dim=-1).long(),
        position_ids=build_position_ids(mask),
        attention_mask=mask.long(),
        before=_join_ranges(starts, lengths.responses) - 1,
        targets=targets,
        slots=slots,
        lengths=(),
    )


def pack_inputs(sequences: Sequences, *, multiple: int = 1) -> ModelInputs:
    """Concatenate all sequences, and one of padding that makes the length a multiple of `multiple`."""
    device = sequences.prompts.device
    padded = torch.cat([sequences.prompts, sequences.responses], dim=-1)
    counts = sequences.count_lengths()
    lengths = [prompt + response for prompt, response in zip(counts.prompts, counts.responses, strict=True)]
    tokens = padded.flatten().index_select(0, find_token_places(sequences)).long()
    positions = send_to(device, _join_ranges([0] * len(lengths), lengths))
    starts = [start + prompt for start, prompt in zip(accumulate(lengths, initial=0), counts.prompts, strict=False)]
    slots, targets = _find_targets(sequences, counts)
    if rest := -len(tokens) % multiple:
        lengths.append(rest)
        filler = torch.arange(rest, device=device)
        tokens = torch.cat([tokens, torch.zeros_like(filler)])
        positions = torch.cat([positions, filler])
    return ModelInputs(
        tokens=tokens[None],
        position_ids=positions[None],
        attention_mask=None,
        before=_join_ranges(starts, counts.responses) - 1,
        targets=targets,
        slots=slots,
        lengths=tuple(lengths),
    )


def find_token_places(sequences: Sequences) -> Tensor:
    """Return the position of each packed token in the flattened prompts and responses [B, P + T]: [N], int64."""
    counts = sequences.count_lengths()
    width = sequences.prompts.shape[1]
    whole = width + sequences.responses.shape[1]
    firsts = [row * whole + width - prompt for row, prompt in enumerate(counts.prompts)]
    lengths = [prompt + response for prompt, response in zip(counts.prompts, counts.responses, strict=True)]
    return send_to(sequences.prompts.device, _join_ranges(firsts, lengths))


def _find_targets(sequences: Sequences, lengths: RowLengths) -> tuple[Tensor, Tensor]:
    """Return the position of each response token in the flattened responses, and the tokens: [M] each, int64."""
    responses = sequences.responses
    slots = send_to(responses.device, _join_ranges(range(0, responses.numel(), responses.shape[1]), lengths.responses))
    return slots, responses.flatten().index_select(0, slots).long()


def send_to(device: torch.device, positions: Positions) -> Tensor:
    """Copy positions to the device: [N], int64."""
    return torch.from_numpy(positions).to(device, non_blocking=True)


def _join_ranges(starts: Sequence[int], lengths: Sequence[int]) -> Positions:
    """Return the numbers from each start on, one range of each length after the other: [N]."""
    return np.concatenate([np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)])


def build_position_ids(mask: Tensor) -> Tensor:
    """Return positions [B, L] that count from 0 at the first token of `mask` [B, L]."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def segments(lengths: tuple[int, ...]) -> list[slice]:
    """Return the slice of each packed sequence."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    return [slice(start, end) for start, end in pairwise(ends)]
