"""A batch is distributed over the train workers, and their results are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import compute_update_metrics
from rlt_trainer.workers.train_worker import TrainWorker

R = TypeVar("R")
ROWS = 8
SEQUENCES = Sequences.pad([[row] for row in range(ROWS)], [[7] * (1 + row % 3) for row in range(ROWS)], pad_token_id=0)


class Worker:
    """A stand-in for a TrainWorker. Ranks of a group divide their sums between them, like TrainedModel."""

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size

    def first_prompt_tokens(self, sequences: Sequences) -> Tensor:
        return sequences.prompts[:, 0]

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
    (tokens,) = data_parallel.compute(cast(Any, Worker.first_prompt_tokens), SEQUENCES)
    assert tokens.tolist() == list(range(ROWS))


def test_rows_need_not_be_divisible_by_the_ranks() -> None:
    data_parallel = DataParallel(FourWorkers(1), context_parallel_size=1)
    (tokens,) = data_parallel.compute(cast(Any, Worker.first_prompt_tokens), SEQUENCES.rows(slice(1, 6)))
    assert tokens.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_results_of_shared_rows_count_once(group_size: int) -> None:
    zeros = torch.zeros(SEQUENCES.responses.shape)
    experience = Experience(SEQUENCES, zeros, zeros)
    data_parallel = DataParallel(FourWorkers(group_size), context_parallel_size=group_size)
    metrics = compute_update_metrics(data_parallel.update(cast(Any, Worker.update), experience, rows=4, epochs=2))
    assert metrics["rows"] == 4
    assert metrics["actor/grad_norm"] == SEQUENCES.response_mask.sum() / 2
