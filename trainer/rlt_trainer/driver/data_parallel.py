"""A batch split over the train workers, with about equal costs for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlt_api.blocks.training import Training
from rlt_trainer.batches.balance import Cost
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.ragged import pad_rows, split_rows
from rlt_trainer.batches.sequences import (
    Experience,
    MiniBatch,
    Sequences,
    TokenValues,
    balance_shares,
    fill_rows,
    split_mini_batches,
)
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.telemetry.flops import Shape, find_cost

if TYPE_CHECKING:
    from rlt_trainer.workers.train_worker import TrainWorker

Part = TypeVar("Part", Sequences, Pairs)
R = TypeVar("R")
T = TypeVar("T")


class TrainWorkers(Protocol):
    """All train workers: a WorkerGroup of Ray actors, or the processes that torchrun started (replay.py)."""

    def __len__(self) -> int: ...

    def each(self, method: Callable[Concatenate[TrainWorker, ...], R], *columns: Sequence[Any]) -> list[R]:
        """Call the method on every worker with its own arguments: each of `columns` has one element for each rank."""
        ...


class DataParallel:
    """Calls the train workers with their shares of a batch, and restores the row order of the results.

    Neighboring ranks that share sequences (training.contextParallelSize) are a group, and get the same rows.
    """

    def __init__(
        self, workers: TrainWorkers, *, context_parallel_size: int, cost: Cost = float, equal: bool = True
    ) -> None:
        """cost: of a sequence, which the shares balance. equal: whether all shares have the same number of rows, as
        micro-batches of rows require."""
        self._workers = workers
        self._cost = cost
        self._equal = equal
        self._group_size = context_parallel_size
        self._groups = len(workers) // context_parallel_size

    @classmethod
    def of(cls, workers: TrainWorkers, training: Training, shape: Shape | None) -> Self:
        """`shape`: of the policy, which determines the cost of a sequence. None: its tokens."""
        return cls(
            workers,
            context_parallel_size=training.context_parallel_size,
            cost=find_cost(shape),
            equal=not training.use_dynamic_bsz,
        )

    def compute(
        self, method: Callable[[TrainWorker, Sequences], tuple[TokenValues, ...]], sequences: Sequences
    ) -> tuple[Tensor, ...]:
        """Call a method that returns values of the response tokens. Return them as [B, T], or [B, T, K] for K values of
        a token, 0 at padding."""
        filled = fill_rows(sequences, self._groups)
        shares = self._balance(filled)
        by_rank = self._workers.each(method, self._repeat([filled.rows(rows) for rows in shares]))
        by_group = by_rank[:: self._group_size]
        order = torch.cat(shares)  # the row of each result, one group after the other
        lengths = filled.response_lengths()
        width = filled.responses.shape[1]
        lengths_in_order = [lengths[row] for row in order.tolist()]
        positions = order.argsort()[: len(sequences)].tolist()
        tensors = []
        for parts in zip(*by_group, strict=True):
            flat = np.concatenate(parts)
            results = split_rows(flat, lengths_in_order)
            in_order = [results[position] for position in positions]
            tensors.append(pad_rows(in_order, flat.dtype.type, width=width, shape=flat.shape[1:]))
        return tuple(tensors)

    def update(
        self,
        method: Callable[[TrainWorker, Sequence[MiniBatch]], list[UpdateResult]],
        experience: Experience,
        *,
        rows: int,
        epochs: int,
    ) -> list[Sequence[UpdateResult]]:
        """Run `epochs` passes over the mini-batches of `rows` trajectories, one optimizer step each.

        Returns the results by optimizer step and rank. Each rank of a group has its part of the group's metrics.
        """
        mini_batches = split_mini_batches(
            experience, rows=rows, shares=self._groups, cost=self._cost, equal=self._equal
        )
        steps = list(mini_batches) * epochs  # [optimizer step][group]
        by_group = list(zip(*steps, strict=True))  # [group][optimizer step]
        by_rank = self._workers.each(method, self._repeat(by_group))  # [rank][optimizer step]
        return list(zip(*by_rank, strict=True))  # [optimizer step][rank]

    def optimizer_step(
        self, method: Callable[[TrainWorker, Part, int], UpdateResult], rows: Part, *, total: int
    ) -> list[UpdateResult]:
        """Run one optimizer step on all rows. Return the results by rank. `total`: the divisor of the loss."""
        parts = [rows.rows(numbers) for numbers in self._balance(rows)]
        return self._workers.each(method, self._repeat(parts), [total] * len(self._workers))

    def _balance(self, rows: Sequences | Pairs) -> list[Tensor]:
        """Return the row numbers of each group."""
        return balance_shares(rows.token_counts(), self._groups, cost=self._cost, equal=self._equal)

    def _repeat(self, by_group: Sequence[T]) -> list[T]:
        """Give each rank the element of its group."""
        return [part for part in by_group for _ in range(self._group_size)]
