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
from rlt_trainer.batches.routes import Routes
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
        results, places = self._call(method, sequences)
        return tuple(_pad_values(parts, places, sequences) for parts in zip(*results, strict=True))

    def compute_with_routes(
        self, method: Callable[[TrainWorker, Sequences], tuple[TokenValues, TokenValues, Routes]], sequences: Sequences
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `compute` for a method that also returns the routes of all tokens: [B, P + T, L, k]."""
        results, places = self._call(method, sequences)
        first, second, routes = zip(*results, strict=True)
        rows = _sort_rows(routes, places, sequences.token_counts())
        routed = sequences.with_routes(rows).routes
        assert routed is not None
        return _pad_values(first, places, sequences), _pad_values(second, places, sequences), routed

    def _call(self, method: Callable[[TrainWorker, Sequences], R], sequences: Sequences) -> tuple[list[R], Tensor]:
        """Call the method with each group's rows. Return the results by group, and the row of each result, one group
        after the other: rows from len(sequences) on are copies of the first."""
        filled = fill_rows(sequences, self._groups)
        shares = self._balance(filled)
        by_rank = self._workers.each(method, self._repeat([filled.rows(rows) for rows in shares]))
        return by_rank[:: self._group_size], torch.cat(shares)

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


def _sort_rows(parts: Sequence[TokenValues], places: Tensor, lengths: Sequence[int]) -> list[TokenValues]:
    """Return the values of each row in order. parts: by group; places: as in DataParallel._call."""
    results = split_rows(np.concatenate(parts), [lengths[row if row < len(lengths) else 0] for row in places.tolist()])
    return [results[position] for position in places.argsort()[: len(lengths)].tolist()]


def _pad_values(parts: Sequence[TokenValues], places: Tensor, sequences: Sequences) -> Tensor:
    """Return the values of the response tokens [B, T, ...]. parts, places: as in _sort_rows."""
    rows = _sort_rows(parts, places, sequences.response_lengths())
    first = parts[0]
    return pad_rows(rows, first.dtype.type, width=sequences.responses.shape[1], shape=first.shape[1:])
