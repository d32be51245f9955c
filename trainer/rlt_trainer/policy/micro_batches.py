"""Micro-batches: how a rank splits its rows, by rows or by tokens, and evaluation without gradient over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from rlt_api.blocks.training import Training
from rlt_trainer.batches.balance import Cost, extend_micro_batches, group_micro_batches
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.sequences import Experience, Sequences
from rlt_trainer.telemetry.flops import find_cost, find_shape

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
    cost: Cost = float
    """The cost of a sequence, which forward passes of `tokens` balance. Default: its tokens."""

    @classmethod
    def of(cls, training: Training, rows: int, *, packed: bool, model: PreTrainedModel | None = None) -> Self:
        """`rows` responses, or the token limit of all devices that share a sequence, with the cost in `model`."""
        tokens = training.ppo_max_token_len_per_device if training.use_dynamic_bsz else None
        shape = None if model is None else find_shape(model.config)
        return cls(rows, tokens and tokens * training.context_parallel_size, packed, find_cost(shape))


def split_micro_batches(rows: Part, size: MicroBatchSize, device: torch.device) -> Iterator[tuple[Tensor, Part]]:
    """Yield row numbers and rows of each micro-batch, on `device`. Every rank gets the same number of micro-batches.

    A rank with too few rows repeats its first row, with an empty response mask and without row numbers.
    Collective if `size` counts tokens.
    """
    for part in _split_row_numbers(rows, size, device):
        numbers = torch.tensor(part, dtype=torch.long)
        yield numbers, (rows.rows(numbers) if part else rows.rows(slice(1)).clear(torch.tensor([True]))).to(device)


class RowValues:
    """Values of tokens, collected by micro-batch. They stay on the device until all are known."""

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._parts: list[list[Tensor]] = []

    def add(self, numbers: Tensor, values: Sequence[Tensor]) -> None:
        """Add `values` [b, T] of the rows `numbers`, without gradient. Rows after them are copies."""
        self._numbers.append(numbers)
        self._parts.append([each.detach()[: len(numbers)] for each in values])

    def read(self) -> tuple[Tensor, ...]:
        """Return the values of all rows in order: [B, T] each, on the CPU."""
        order = torch.cat(self._numbers).argsort()
        return tuple(torch.cat(values).cpu()[order] for values in zip(*self._parts, strict=True))


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
    values = RowValues()
    for rows, part in split_micro_batches(sequences, size, device):
        values.add(rows, forward(part))
    assert isinstance(model, FSDPModule)
    model.reshard()  # FSDP2 keeps the gathered root weights for a backward pass and would reuse them later
    return values.read()


def _split_row_numbers(rows: Part, size: MicroBatchSize, device: torch.device) -> list[list[int]]:
    if size.tokens is None:
        numbers = range(len(rows))
        return [list(numbers[start : start + size.rows]) for start in numbers[:: size.rows]]
    lengths = rows.token_counts(padded=not size.packed)
    costs = [size.cost(length) for length in lengths]
    mine = group_micro_batches(lengths, size.tokens, costs)
    count = torch.tensor(len(mine), device=device)
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    return extend_micro_batches(mine, lengths, size.tokens, costs, int(count))
