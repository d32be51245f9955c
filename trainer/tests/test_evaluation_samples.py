"""The Parquet file of an evaluation, its retention, and the comparison of two of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import torch

from rlt_trainer.__main__ import main
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.evaluation import sample_file
from rlt_trainer.evaluation.retention import NEWEST, find_superseded
from rlt_trainer.evaluation.sample_file import read_samples, select_texts, write_samples
from rlt_trainer.evaluation.samples import Samples, find_answer

N = 2


def build_batch(scores: list[float], texts: list[str] | None = None) -> RolloutBatch:
    prompts = [Prompt(row // N, (1,), f"{row // N}+1=", "2", "2", "sums") for row in range(len(scores))]
    total = torch.tensor(scores, dtype=torch.float32)
    by_reward = {"exact": total, "length": torch.zeros(len(scores))}
    return RolloutBatch(
        prompts,
        [Response((7, 8), (-1.0, -1.0), finish_reason="length")] * len(scores),
        texts or ["#### 2"] * len(scores),
        Scores(total, by_reward, total.isnan(), {}),
        torch.zeros(len(scores)),
    )


def write(file: Path, scores: list[float], texts: list[str] | None = None) -> Path:
    batch = build_batch(scores, texts)
    file.write_bytes(write_samples(Samples.of(batch, N), batch))
    return file


def test_a_file_has_a_row_for_each_response(tmp_path: Path) -> None:
    file = write(tmp_path / "step-1.parquet", [1.0, math.nan, 0.5, 0.0], ["so #### 2", "\udc80", "3", "3"])
    rows = pq.read_table(file).to_pylist()
    assert [(row["index"], row["sample"], row["score"], row["answer_group"]) for row in rows] == [
        (0, 0, 1.0, 0),
        (0, 1, None, 1),
        (1, 0, 0.5, 0),
        (1, 1, 0.0, 0),
    ]
    first = rows[0]
    assert len(first.pop("prompt_id")) == 16
    assert first == {
        "index": 0,
        "data_source": "sums",
        "sample": 0,
        "score": 1.0,
        "reward/exact": 1.0,
        "reward/length": 0.0,
        "answer_group": 0,
        "tokens": 2,
        "finish_reason": "length",
        "prompt": "0+1=",
        "ground_truth": "2",
        "response": "so #### 2",
    }
    assert rows[1]["response"] == "\\udc80"


def test_the_scores_are_read_back(tmp_path: Path) -> None:
    scores = [1.0, math.nan, 0.5, 0.0]
    samples = Samples.of(build_batch(scores, ["2", "3", "3", "3"]), N)
    read = read_samples(write(tmp_path / "step-1.parquet", scores, ["2", "3", "3", "3"]))
    for name in ("indices", "ids", "sources", "scores", "answers"):
        np.testing.assert_array_equal(getattr(read, name), getattr(samples, name))


def test_texts_are_bounded_and_scores_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_file, "MAX_TEXT", 1000)
    table = pq.read_table(write(tmp_path / "step-1.parquet", [1.0] * 40, ["x" * 100] * 40))
    kept = [
        index for index, text in zip(table["index"].to_pylist(), table["response"].to_pylist(), strict=True) if text
    ]
    assert kept == [0, 0, 5, 5, 10, 10, 15, 15]  # 4 of 20 prompts with 204 characters each
    assert table["score"].null_count == 0
    assert [text is None for text in table["prompt"].to_pylist()] == [
        text is None for text in table["response"].to_pylist()
    ]


@pytest.mark.parametrize(("sizes", "kept"), [([], []), ([9], [False]), ([1, 9, 1, 1], [True, False, False, False])])
def test_a_text_over_the_bound_is_left_out(monkeypatch: pytest.MonkeyPatch, sizes: list[int], kept: list[bool]) -> None:
    monkeypatch.setattr(sample_file, "MAX_TEXT", 4)
    assert select_texts(sizes).tolist() == kept


def test_prompts_are_paired_by_index_and_text() -> None:
    samples = Samples.of(build_batch([1.0, 1.0, 0.0, 0.0, 0.5, 0.5]), N)
    other = samples.select(np.array([2, 0]))
    other = replace(other, ids=np.array([other.ids[0], "0" * 16]))
    mine, theirs = samples.pair(other)
    assert mine.indices.tolist() == theirs.indices.tolist() == [2]
    assert mine.scores.tolist() == theirs.scores.tolist() == [[0.5, 0.5]]


def test_a_comparison_prints_paired_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write(tmp_path / "step-0.parquet", [0.0, 1.0] * 12)
    later = write(tmp_path / "step-9.parquet", [1.0, 1.0] * 10 + [0.0, 0.0] * 10)
    assert main(["compare", str(base), str(later)]) == 0
    header, mean, best, majority, prompts = capsys.readouterr().out.splitlines()
    assert header.split() == ["DATA", "SOURCE", "METRIC", "BASE", "VALUE", "DIFFERENCE", "95%", "INTERVAL"]
    assert mean.split()[:5] == ["sums", "mean", "0.5000", "0.8333", "+0.3333"]
    assert best.split()[1:5] == ["best@2", "1.0000", "0.8333", "-0.1667"]
    assert majority.split()[1] == "maj@2"
    low, high = (float(mean.split()[column]) for column in (5, 7))
    assert 0 < low < 1 / 3 < high <= 0.5
    assert prompts == "12 prompts in both, 12 in the base, 20 in the other"


def test_runs_are_compared_by_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run, suites in {"base": ("digits", "sums"), "other": ("extra", "sums")}.items():
        for suite in suites:
            folder = tmp_path / run / "evaluation" / suite
            folder.mkdir(parents=True)
            write(folder / "step-9.parquet", [1.0, 1.0] * 12)
            write(folder / "step-10.parquet", [float(run == "other"), 1.0] * 12)
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "other")]) == 0
    title, _, mean, *_ = capsys.readouterr().out.splitlines()
    assert title == "sums: step-10 and step-10"
    assert mean.split()[1:5] == ["mean", "0.5000", "1.0000", "+0.5000"]
    assert main(["compare", str(tmp_path / "base"), str(tmp_path)]) == 1
    assert "its suites (none) are not in" in capsys.readouterr().err


def test_the_first_the_best_and_the_newest_evaluations_are_kept(tmp_path: Path) -> None:
    """The best one of step 3 gives way to step 6. Step 90 is left from before a resume."""
    write(tmp_path / "step-90.parquet", [0.0, 0.0])
    for step in range(30):
        write(tmp_path / f"step-{step}.parquet", [{3: 0.5, 6: 1.0}.get(step, 0.0)] * 2)
        for file in find_superseded(tmp_path, step):
            file.unlink()
        assert (tmp_path / "step-3.parquet").exists() == (3 <= step < 6 + NEWEST)
    kept = sorted(int(file.stem.removeprefix("step-")) for file in tmp_path.iterdir())
    assert kept == [0, 6, *range(30 - NEWEST, 30), 90]


def test_a_damaged_file_is_not_the_best(tmp_path: Path) -> None:
    for step in range(NEWEST + 3):
        write(tmp_path / f"step-{step}.parquet", [0.5, 0.5])
    (tmp_path / "step-2.parquet").write_bytes(b"damaged")
    assert [file.stem for file in find_superseded(tmp_path, NEWEST + 2)] == ["step-2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"step", "cannot be read as the Parquet file of an evaluation"), (None, "no such file")],
)
def test_another_file_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    base = write(tmp_path / "step-0.parquet", [0.0, 1.0] * 12)
    file = tmp_path / "step-1.parquet"
    if content is not None:
        file.write_bytes(content)
    assert main(["compare", str(base), str(file)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert str(file) in error
    assert "Traceback" not in error


def test_a_table_of_something_else_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "step-1.parquet"
    pq.write_table(pq.read_table(write(file, [0.0, 1.0])).drop_columns(["sample"]), file)
    with pytest.raises(ValueError, match="sample"):
        read_samples(file)
    pq.write_table(pq.read_table(write(file, [0.0] * 4)).slice(1), file)
    with pytest.raises(ValueError, match="are not groups of 2 responses"):
        read_samples(file)


def test_evaluations_of_other_data_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write(tmp_path / "step-0.parquet", [0.0] * 4)
    assert main(["compare", str(base), str(base)]) == 1
    assert "a comparison needs 10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1\n#### 1,000", "1000"),
        ("#### 1 or #### 2", "2"),
        ("it is $\\boxed{x+1}$.", "x+1"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        (" 7 ", "7"),
    ],
)
def test_the_final_answer_is_found(text: str, answer: str) -> None:
    assert find_answer(text) == answer
