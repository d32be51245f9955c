"""A batch is distributed over the train workers, and their results are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
import torch

from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences, TokenValues
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import compute_update_metrics
from rlt_trainer.telemetry.flops import Attention, Shape
from rlt_trainer.workers.train_worker import TrainWorker

R = TypeVar("R")
ROWS = 8
SEQUENCES = Sequences.pad([[row] for row in range(ROWS)], [[7] * (1 + row % 3) for row in range(ROWS)], pad_token_id=0)


class Worker:
    """A stand-in for a TrainWorker. Ranks of a group divide their sums between them, like TrainedModel."""

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size

    def row_numbers(self, sequences: Sequences) -> tuple[TokenValues]:
        """Return the first token of the prompt, for each token of the response."""
        return (sequences.flatten(sequences.prompts[:, :1].expand(sequences.responses.shape)),)

    def token_pairs(self, sequences: Sequences) -> tuple[TokenValues]:
        """Return the first token of the prompt twice, for each token of the response."""
        first = sequences.prompts[:, :1, None]
        return (sequences.flatten(first.expand(*sequences.responses.shape, 2)),)

    def numbered_routes(self, sequences: Sequences) -> tuple[TokenValues, TokenValues, TokenValues]:
        """Return the first token of the prompt twice, and routes to that expert."""
        (numbers,) = self.row_numbers(sequences)
        shape = (len(sequences), sequences.prompts.shape[1] + sequences.responses.shape[1], 2, 3)
        routes = (sequences.prompts[:, :1, None, None] + 1).to(torch.uint8).expand(shape)
        return numbers, numbers, sequences.flatten_routes(routes)

    def update(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        return [
            UpdateResult({"rows": len(each.experience) / self._group_size}, float(each.total_tokens), False, 0.1)
            for each in batches
        ]


class FourWorkers:
    def __init__(self, group_size: int) -> None:
        self._worker = cast(TrainWorker, Worker(group_size))

    def __len__(self) -> int:
        return 4

    def each(self, method: Callable[..., R], *columns: Sequence[Any]) -> list[R]:
        return [method(self._worker, *arguments) for arguments in zip(*columns, strict=True)]


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_results_keep_the_order_of_the_rows(group_size: int) -> None:
    data_parallel = DataParallel(FourWorkers(group_size), context_parallel_size=group_size)
    (numbers,) = data_parallel.compute(cast(Any, Worker.row_numbers), SEQUENCES)
    assert numbers.tolist() == [[row if column <= row % 3 else 0 for column in range(3)] for row in range(ROWS)]


def test_several_values_of_a_token_keep_their_shape_and_type() -> None:
    (pairs,) = DataParallel(FourWorkers(1), context_parallel_size=1).compute(cast(Any, Worker.token_pairs), SEQUENCES)
    assert pairs.dtype == torch.int32
    assert pairs[..., 0].tolist() == pairs[..., 1].tolist()
    assert pairs[..., 0].tolist() == [[row if column <= row % 3 else 0 for column in range(3)] for row in range(ROWS)]


@pytest.mark.parametrize("rows", [8, 5])
def test_routes_keep_the_order_of_the_rows(rows: int) -> None:
    sequences = SEQUENCES.rows(slice(rows))
    data_parallel = DataParallel(FourWorkers(1), context_parallel_size=1)
    numbers, again, routes = data_parallel.compute_with_routes(cast(Any, Worker.numbered_routes), sequences)
    assert numbers[:, 0].tolist() == again[:, 0].tolist() == list(range(rows))
    lengths = sequences.response_lengths()
    assert routes[:, :, 0, 0].tolist() == [
        [row + 1] * (1 + length) + [0] * (sequences.responses.shape[1] - length) for row, length in enumerate(lengths)
    ]


def test_rows_need_not_be_divisible_by_the_ranks() -> None:
    data_parallel = DataParallel(FourWorkers(1), context_parallel_size=1)
    (numbers,) = data_parallel.compute(cast(Any, Worker.row_numbers), SEQUENCES.rows(slice(1, 6)))
    assert numbers[:, 0].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_results_of_shared_rows_count_once(group_size: int) -> None:
    zeros = torch.zeros(SEQUENCES.responses.shape)
    experience = Experience(SEQUENCES, zeros, zeros)
    data_parallel = DataParallel(FourWorkers(group_size), context_parallel_size=group_size)
    metrics = compute_update_metrics(data_parallel.update(cast(Any, Worker.update), experience, rows=4, epochs=2))
    assert metrics["rows"] == 4
    assert metrics["actor/grad_norm"] == SEQUENCES.response_mask.sum() / 2


def test_shares_of_dynamic_batches_have_equal_costs_and_not_equal_rows() -> None:
    """A response of 40 tokens costs more than twenty of 2 if the attention costs more than the layers."""
    shape = Shape(weights=1, head_weights=0, attention=(Attention(width=10),))
    uneven = Sequences.pad([[row] for row in range(8)], [[7] * 40, *[[7] * 2] * 7], pad_token_id=0)
    zeros = torch.zeros(uneven.responses.shape)
    rows = {}
    for dynamic in (False, True):
        training = Training(total_steps=1, use_dynamic_bsz=dynamic, ppo_max_token_len_per_device=64)
        data_parallel = DataParallel.of(FourWorkers(1), training, shape)
        (numbers,) = data_parallel.compute(cast(Any, Worker.row_numbers), uneven)
        assert numbers[:, 0].tolist() == list(range(8))
        (results,) = data_parallel.update(cast(Any, Worker.update), Experience(uneven, zeros, zeros), rows=8, epochs=1)
        rows[dynamic] = [result.shares["rows"] for result in results]
    assert rows == {False: [2, 2, 2, 2], True: [1, 3, 2, 2]}
