"""A batch is distributed over the train workers, and their results are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import update_metrics

ROWS = 8
SEQUENCES = Sequences.pad([[row] for row in range(ROWS)], [[7] * (1 + row % 3) for row in range(ROWS)], pad_token_id=0)


class FourRanks:
    """Each rank returns values of its rows. Ranks that share rows divide the sum, as TrainedModel does."""

    ranks = 4

    def __init__(self, copies: int) -> None:
        self._copies = copies

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        return [getattr(self, method)(*own) for own in zip(*shares, strict=True)]

    def first_prompt_tokens(self, sequences: Sequences) -> Tensor:
        return sequences.prompts[:, 0]

    def update(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        return [
            UpdateResult({"rows": len(each.experience) / self._copies}, float(each.total_tokens), False, 0.1)
            for each in batches
        ]


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_results_keep_the_order_of_the_rows(copies: int) -> None:
    ranks = DataParallel(FourRanks(copies), context_parallel_size=copies)
    (answers,) = ranks.compute("first_prompt_tokens", SEQUENCES)
    assert answers.tolist() == list(range(ROWS))


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_results_of_shared_rows_count_once(copies: int) -> None:
    zeros = torch.zeros(SEQUENCES.responses.shape)
    experience = Experience(SEQUENCES, zeros, zeros)
    ranks = DataParallel(FourRanks(copies), context_parallel_size=copies)
    metrics = update_metrics(ranks.update("update", experience, rows=4, epochs=2))
    assert metrics["rows"] == 4
    assert metrics["actor/grad_norm"] == SEQUENCES.response_mask.sum() / 2
