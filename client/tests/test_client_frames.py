"""Metrics as data frames."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas
import pytest

from rlt.errors import MissingExtraError, UnavailableError
from rlt.frames import Steps, build_frame
from rlt.job import LocalResult

STEPS: Steps = [{"step": 1, "reward": 0.25}, {"step": 2, "reward": None, "val/score": 0.5}]


def test_a_step_is_a_row_and_missing_values_are_nan() -> None:
    frame = build_frame(STEPS, "pandas")
    assert (frame.index.name, list(frame.index), list(frame.columns)) == ("step", [1, 2], ["reward", "val/score"])
    assert frame["reward"].isna().tolist() == [False, True]
    assert frame.loc[2, "val/score"] == 0.5
    assert set(map(str, frame.dtypes)) == {"float64"}


def test_a_job_without_steps_has_an_empty_frame() -> None:
    frame = build_frame([], "pandas")
    assert isinstance(frame, pandas.DataFrame)
    assert (len(frame), frame.index.name) == (0, "step")


def test_polars_has_the_same_values() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = build_frame(STEPS, "polars")
    assert frame.columns == ["step", "reward", "val/score"]
    assert frame.schema["step"] == polars.Int64
    assert frame.rows() == [(1, 0.25, None), (2, None, 0.5)]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match="polars is not installed") as raised:
        build_frame(STEPS, "polars")
    assert raised.value.next == "pip install polars"


def test_a_local_run_reads_the_metrics_of_its_directory(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in STEPS))
    assert LocalResult(tmp_path, "").metrics().equals(build_frame(STEPS, "pandas"))
    with pytest.raises(UnavailableError, match="recorded no metrics"):
        LocalResult(tmp_path / "empty", "").metrics()


def test_an_unknown_library_is_rejected() -> None:
    with pytest.raises(ValueError, match="library: excel: use pandas or polars"):
        build_frame(STEPS, "excel")  # type: ignore[call-overload]
