"""A batch shared by the ranks: as many responses for each, and about as many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Experience, Sequences, balanced_shares, mini_batches
from rlt_trainer.batches.update_result import UpdateResult

T = TypeVar("T")


class Ranks(Protocol):
    """All ranks: Ray's actors (workers.py), or the processes that torchrun has started (replay.py)."""

    ranks: int

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        """Call a method of every rank with its own arguments: each of `shares` has one element for every rank."""


class DataParallel:
    """Calls the ranks with their shares, and puts the answers back in order.

    Neighbouring ranks that share sequences (training.contextParallelSize) are a group, and get the same rows.
    """

    def __init__(self, workers: Ranks, *, context_parallel_size: int) -> None:
        self._workers = workers
        self._copies = context_parallel_size
        self._groups = workers.ranks // context_parallel_size

    def compute(self, method: str, sequences: Sequences) -> tuple[Tensor, ...]:
        """What `method` of the ranks says of its sequences, one tensor or several of one row each: in row order."""
        numbers = balanced_shares(sequences, self._groups)
        answers = self._workers.each(method, self._by_rank([sequences.rows(rows) for rows in numbers]))
        by_group = [answer if isinstance(answer, tuple) else (answer,) for answer in answers[:: self._copies]]
        order = torch.cat(numbers).argsort()  # from the groups' rows, one group after the other, back to the batch's
        return tuple(torch.cat(parts)[order] for parts in zip(*by_group, strict=True))

    def update(self, method: str, experience: Experience, *, rows: int, epochs: int) -> list[Sequence[UpdateResult]]:
        """`epochs` passes over the mini-batches of `rows` responses, an optimizer step each. Returns the results by
        optimizer step, each by rank: ranks that share rows have divided what they say of them among themselves."""
        steps = list(mini_batches(experience, rows=rows, shares=self._groups)) * epochs  # [optimizer step][group]
        by_group = list(zip(*steps, strict=True))  # [group][optimizer step]
        by_rank = self._workers.each(method, self._by_rank(by_group))  # [rank][optimizer step]
        return list(zip(*by_rank, strict=True))  # [optimizer step][rank]

    def supervised_step(self, targets: Sequences) -> list[UpdateResult]:
        """One step of the warm-up. Returns the results by rank."""
        tokens = int(targets.response_mask.sum())
        parts = [targets.rows(rows) for rows in balanced_shares(targets, self._groups)]
        return self._workers.each("supervised_step", self._by_rank(parts), [tokens] * self._workers.ranks)

    def _by_rank(self, by_group: Sequence[T]) -> list[T]:
        return [part for part in by_group for _ in range(self._copies)]
