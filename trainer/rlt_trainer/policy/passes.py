"""How a rank's rows are cut into passes through the model: by rows, or by tokens and alike on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rlt_api.blocks.training import Training
from rlt_trainer.batches.balance import passes_within, split_to
from rlt_trainer.batches.sequences import Experience, Sequences

Part = TypeVar("Part", Sequences, Experience)


@dataclass(frozen=True)
class PassSize:
    """How much goes through the model at a time. It changes memory and speed, never the result."""

    rows: int
    """Responses."""
    tokens: int | None = None
    """Tokens instead of responses: training.useDynamicBsz."""
    packed: bool = False
    """Whether padding costs nothing."""

    @classmethod
    def of(cls, training: Training, rows: int, *, packed: bool) -> Self:
        """`rows` responses, or as many tokens as the devices that share a sequence have room for together."""
        tokens = training.ppo_max_token_len_per_device if training.use_dynamic_bsz else None
        return cls(rows, tokens and tokens * training.context_parallel_size, packed)


def passes(rows: Part, size: PassSize, device: torch.device) -> Iterator[tuple[Tensor, Part]]:
    """Row numbers and rows of each pass, on `device`; every rank gets the same number of passes.

    A rank with fewer rows than the others have passes sees its first row again, with nothing to learn from it and
    without row numbers. Collective, where `size` counts tokens.
    """
    for part in _row_numbers(rows, size, device):
        numbers = torch.tensor(part, dtype=torch.long)
        yield numbers, (rows.rows(numbers) if part else _muted(rows.rows(slice(1)))).to(device)


def _row_numbers(rows: Sequences | Experience, size: PassSize, device: torch.device) -> list[list[int]]:
    if size.tokens is None:
        numbers = range(len(rows))
        return [list(numbers[start : start + size.rows]) for start in numbers[:: size.rows]]
    lengths = _lengths(rows.sequences if isinstance(rows, Experience) else rows, packed=size.packed)
    mine = passes_within(lengths, size.tokens)
    count = torch.tensor(len(mine), device=device)
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    return split_to(mine, lengths, int(count))


def _lengths(sequences: Sequences, *, packed: bool) -> list[int]:
    if packed:
        lengths: list[int] = (sequences.prompt_mask.sum(-1) + sequences.response_attention.sum(-1)).tolist()
        return lengths
    return [sequences.prompts.shape[1] + sequences.responses.shape[1]] * len(sequences)


def _muted(row: Any) -> Any:
    """The same without a token to learn from."""
    if isinstance(row, Experience):
        return replace(row, sequences=_muted(row.sequences))
    return replace(row, response_mask=torch.zeros_like(row.response_mask))
