"""Micro-batches: how a rank splits its rows, by rows or by tokens, and evaluation without gradient over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from rlt_api.blocks.training import Training
from rlt_trainer.batches.balance import extend_micro_batches, group_micro_batches
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.sequences import Experience, Sequences

Part = TypeVar("Part", Sequences, Experience, Pairs)


@dataclass(frozen=True)
class MicroBatchSize:
    """The size of one forward pass. It changes memory and speed, never the result."""

    rows: int
    """Responses, or pairs."""
    tokens: int | None = None
    """Tokens instead of responses: training.useDynamicBsz."""
    packed: bool = False
    """Whether sequences are packed, so that padding costs nothing."""

    @classmethod
    def of(cls, training: Training, rows: int, *, packed: bool) -> Self:
        """`rows` responses, or the token limit of all devices that share a sequence."""
        tokens = training.ppo_max_token_len_per_device if training.use_dynamic_bsz else None
        return cls(rows, tokens and tokens * training.context_parallel_size, packed)


def split_micro_batches(rows: Part, size: MicroBatchSize, device: torch.device) -> Iterator[tuple[Tensor, Part]]:
    """Yield row numbers and rows of each micro-batch, on `device`. Every rank gets the same number of micro-batches.

    A rank with too few rows repeats its first row, with an empty response mask and without row numbers.
    Collective if `size` counts tokens.
    """
    for part in _split_row_numbers(rows, size, device):
        numbers = torch.tensor(part, dtype=torch.long)
        yield numbers, (rows.rows(numbers) if part else rows.rows(slice(1)).clear(torch.tensor([True]))).to(device)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    sequences: Sequences,
    size: MicroBatchSize,
    device: torch.device,
    forward: Callable[[Sequences], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """Return the values that `forward` computes for each response token: [B, T] each, on the CPU. Collective.

    model: the sharded model that `forward` uses.
    """
    numbers = []
    parts = []
    for rows, part in split_micro_batches(sequences, size, device):
        numbers.append(rows)
        parts.append([values[: len(rows)].cpu() for values in forward(part)])
    assert isinstance(model, FSDPModule)
    model.reshard()  # FSDP2 keeps the gathered root weights for a backward pass and would reuse them later
    order = torch.cat(numbers).argsort()
    return tuple(torch.cat(values)[order] for values in zip(*parts, strict=True))


def _split_row_numbers(rows: Part, size: MicroBatchSize, device: torch.device) -> list[list[int]]:
    if size.tokens is None:
        numbers = range(len(rows))
        return [list(numbers[start : start + size.rows]) for start in numbers[:: size.rows]]
    lengths = rows.token_counts(padded=not size.packed)
    mine = group_micro_batches(lengths, size.tokens)
    count = torch.tensor(len(mine), device=device)
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    return extend_micro_batches(mine, lengths, int(count))
