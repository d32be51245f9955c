"""The prompts whose score differs between two evaluations: which are listed, and with which responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from rlt_api.spec.suite_changes import MAX_SAMPLES, MAX_TEXT, SuiteChanges
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.evaluation import sample_file
from rlt_trainer.evaluation.changes import find_changes, shorten
from rlt_trainer.evaluation.sample_file import write_samples
from rlt_trainer.evaluation.samples import Samples


def write(file: Path, scores: Sequence[Sequence[float]], label: str) -> Path:
    """Write an evaluation of scores [P, n]. The text of each response has the label, the prompt and its number."""
    n = len(scores[0])
    total = torch.tensor(scores, dtype=torch.float32).ravel()
    prompts = [Prompt(row, (1,), f"{row}+1=", str(row + 1), "", "sums") for row in range(len(scores))]
    batch = RolloutBatch(
        [prompt for prompt in prompts for _ in range(n)],
        [Response((7,), (-1.0,), finish_reason="stop")] * len(total),
        [f"{label} {row} {sample}" for row in range(len(scores)) for sample in range(n)],
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(len(total)),
    )
    file.write_bytes(write_samples(Samples.of(batch, n), batch))
    return file


def find(folder: Path, before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> SuiteChanges:
    base = write(folder / "step-0.parquet", before, "before")
    return find_changes("math", 9, write(folder / "step-9.parquet", after, "after"), base)


def test_gains_and_losses_are_listed_by_size_with_the_responses_that_show_them(tmp_path: Path) -> None:
    before: list[list[float]] = [[0, 1], [1, 1], [0, 0], [1, 0], [0.5, 0.5]]
    after: list[list[float]] = [[1, 1], [0, 0], [1, 1], [0, 1], [0.5, 0.25]]
    found = find(tmp_path, before, after)
    assert (found.suite, found.step, found.prompts, found.won, found.lost) == ("math", 9, 5, 2, 2)
    assert [(each.index, each.base_score, each.score) for each in found.samples] == [
        (2, 0.0, 1.0),
        (0, 0.5, 1.0),
        (1, 1.0, 0.0),
        (4, 0.5, 0.375),
    ]
    gain = found.samples[1]
    assert (gain.prompt, gain.answer) == ("0+1=", "1")
    assert (gain.base_response, gain.response) == ("before 0 0", "after 0 0")  # the worst one before
    assert found.samples[3].response == "after 4 1"  # the worst one after


def test_a_response_without_a_score_does_not_count(tmp_path: Path) -> None:
    found = find(tmp_path, [[math.nan, 0], [0, 0], [1, 1]], [[1, math.nan], [math.nan, math.nan], [1, math.nan]])
    assert (found.prompts, found.won, found.lost) == (2, 1, 0)
    assert (found.samples[0].base_response, found.samples[0].response) == ("before 0 1", "after 0 0")


def test_equal_evaluations_have_no_changes(tmp_path: Path) -> None:
    found = find(tmp_path, [[0], [1]], [[0], [1]])
    assert (found.prompts, found.won, found.lost, found.samples) == (2, 0, 0, [])


def test_the_evaluations_can_have_another_number_of_responses_and_of_prompts(tmp_path: Path) -> None:
    found = find(tmp_path, [[0], [0], [0]], [[1, 1], [0, 1]])
    assert (found.prompts, found.won, found.samples[1].response) == (2, 2, "after 1 1")


def test_the_number_of_samples_is_bounded(tmp_path: Path) -> None:
    count = 2 * MAX_SAMPLES
    found = find(tmp_path, [[0.0]] * count + [[1.0]] * count, [[1.0]] * count + [[0.0]] * count)
    assert (found.won, found.lost, len(found.samples)) == (count, count, 2 * MAX_SAMPLES)
    assert sum(each.score > each.base_score for each in found.samples) == MAX_SAMPLES


def test_a_text_that_is_not_in_the_file_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = write(tmp_path / "step-0.parquet", [[0]], "before")
    monkeypatch.setattr(sample_file, "MAX_TEXT", 0)
    (found,) = find_changes("math", 9, write(tmp_path / "step-9.parquet", [[1]], "after"), base).samples
    assert (found.prompt, found.base_response, found.response) == ("0+1=", "before 0 0", None)


def test_the_middle_of_a_long_text_is_left_out() -> None:
    found = shorten(f"start{'x' * MAX_TEXT}#### 42")
    assert found is not None
    assert len(found) == MAX_TEXT
    assert found.startswith("start")
    assert found.endswith("#### 42")
    assert shorten("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert shorten(None) is None
