"""The record of a run that outlives its pods: what it keeps of a run directory, and within which size."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_pod.command.run_record import (
    LAST_STEPS,
    MAX_RECORD_BYTES,
    MAX_STEPS,
    MAX_TEXT_LENGTH,
    build_record,
    thin_out,
    write_record,
)


def write_run(folder: Path, steps: int, *, metrics: int = 3, rollouts: int = 20) -> None:
    numbers = random.Random(0)
    lines = [
        json.dumps({"step": step, **{f"a/{name}": numbers.random() for name in range(metrics)}})
        for step in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "rollouts").mkdir()
    texts = [
        {"index": 0, "prompt": "1 + 1 =", "response": f" {row}", "reward": row / rollouts, "segments": ["x"] * 100}
        for row in range(rollouts)
    ]
    for step in (9, 10):
        (folder / f"rollouts/step-{step}.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in texts))
    spans = [{"step": step, "rank": -1, "phase": "gen", "thread": 1, "start": 1.0, "end": 2.0} for step in (9, 9, 10)]
    (folder / "spans.jsonl").write_text("".join(f"{json.dumps(span)}\n" for span in spans))


def read_record(folder: Path) -> dict[str, Any]:
    packed = build_record(folder)
    assert packed
    assert len(packed) <= MAX_RECORD_BYTES
    found: dict[str, Any] = json.loads(zlib.decompress(packed))
    return found


def test_a_record_has_the_metrics_the_extreme_responses_and_the_spans_of_a_step(tmp_path: Path) -> None:
    write_run(tmp_path, 10)
    record = read_record(tmp_path)
    assert record["steps"] == list(range(1, 11))
    assert {name: len(values) for name, values in record["metrics"].items()} == {"a/0": 10, "a/1": 10, "a/2": 10}
    assert (record["rolloutsStep"], record["spansStep"]) == (10, 10)
    assert [each["reward"] for each in record["rollouts"]] == [0.95, 0.9, 0.85, 0.1, 0.05, 0.0]
    assert "segments" not in record["rollouts"][0]
    assert record["spans"] == [{"rank": -1, "phase": "gen", "thread": 1, "start": 1.0, "end": 2.0}]
    assert record["notes"] == []


def test_a_long_run_with_many_metrics_fits(tmp_path: Path) -> None:
    write_run(tmp_path, 1000, metrics=150)
    record = read_record(tmp_path)
    assert len(record["metrics"]) == 150
    assert record["steps"][-LAST_STEPS:] == list(range(991, 1001))
    assert record["steps"][0] > 1000 - MAX_STEPS
    earlier = record["steps"][:-LAST_STEPS]
    assert {later - step for step, later in pairwise(earlier)} == {2}
    assert len(record["rollouts"]) == 6
    assert record["notes"] == [
        "Of 1000 steps, the last 400 are kept.",
        "Of the steps before the last 10, one of 2 is kept.",
    ]


def test_responses_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, 10)
    noise = random.Random(0)
    long = {f"k{key}": "".join(chr(noise.randrange(0x4E00, 0x9FFF)) for _ in range(1900)) for key in range(30)}
    text = "".join(f"{json.dumps({'prompt': str(row), 'reward': row, **long})}\n" for row in range(6))
    (tmp_path / "rollouts/step-10.jsonl").write_text(text)
    record = read_record(tmp_path)
    assert "rollouts" not in record
    assert record["steps"] == list(range(1, 11))
    assert record["notes"] == ["Responses and spans are too large to be kept."]


def test_long_texts_are_shortened(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    (tmp_path / "rollouts/step-10.jsonl").write_text(json.dumps({"response": "x" * 9000, "reward": None}) + "\n")
    assert read_record(tmp_path)["rollouts"][0]["response"] == f"{'x' * MAX_TEXT_LENGTH}… (7000 more characters)"


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    lines = [
        '{"step": 1, "a": null, "b": "text"}',
        '{"step": 2, "a": NaN',
        '{"step": 2, "a": 0.123456789}',
        '{"step": 3',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    record = read_record(tmp_path)
    assert (record["steps"], record["metrics"]) == ([1, 2], {"a": [None, 0.12346], "b": [None, None]})


def test_the_values_of_secret_variables_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", 'ab"cd-1234567')
    write_run(tmp_path, 1)
    (tmp_path / "rollouts/step-10.jsonl").write_text(
        json.dumps({"response": 'my key: ab"cd-1234567.', "reward": 1}) + "\n"
    )
    assert read_record(tmp_path)["rollouts"][0]["response"] == "my key: ***."


def test_a_run_without_records_has_none(tmp_path: Path) -> None:
    assert build_record(tmp_path) is None


def test_the_responses_of_verl_are_kept(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text(json.dumps({"input": "1 + 1 =", "output": "2", "score": 1.0, "step": 7}) + "\n")
    packed = build_record(tmp_path / "run", tmp_path)
    assert packed
    record = json.loads(zlib.decompress(packed))
    assert record["rolloutsStep"] == 7
    assert record["rollouts"] == [{"index": 0, "prompt": "1 + 1 =", "response": "2", "reward": 1.0, "rewards": {}}]


@pytest.mark.parametrize(("steps", "distance", "kept"), [(30, 8, [5, 13]), (12, 2, [1]), (12, 4, []), (5, 8, [])])
def test_the_last_steps_are_not_thinned_out(steps: int, distance: int, kept: list[int]) -> None:
    numbers = list(range(1, steps + 1))
    found = [each["step"] for each in thin_out([{"step": step} for step in numbers], distance)]
    assert found == [*kept, *numbers[-LAST_STEPS:]]


def test_the_record_is_beside_the_output_of_the_ray_job(tmp_path: Path) -> None:
    write_run(tmp_path, 10)
    write_record(tmp_path, None, tmp_path / "elsewhere.log")
    write_record(tmp_path, None, tmp_path / "job-driver-sum-1.log")
    assert [file.name for file in tmp_path.glob("*driver*")] == ["job-driver-sum-1.record"]
    packed = base64.b64decode((tmp_path / "job-driver-sum-1.record").read_text())
    assert json.loads(zlib.decompress(packed))["steps"] == list(range(1, 11))


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_that_ends_leaves_its_record(tmp_path: Path, mounted: Path, code: int) -> None:
    """Also after a failure, and for a program that reports its progress by itself."""
    write_run(tmp_path, 10)
    command = [sys.executable, str(mounted / PROGRAMS_FILE), "run-command", "--no-progress"]
    command += [
        "--run-directory",
        str(tmp_path),
        "--",
        sys.executable,
        "-c",
        f"print('trained'); raise SystemExit({code})",
    ]
    with (tmp_path / "job-driver-sum-1.log").open("wb") as output:
        assert (
            subprocess.run(command, stdout=output, stderr=output, env=dict(os.environ), check=False).returncode == code
        )
    assert (tmp_path / "job-driver-sum-1.log").read_text() == "trained\n"
    packed = base64.b64decode((tmp_path / "job-driver-sum-1.record").read_text())
    assert json.loads(zlib.decompress(packed))["rolloutsStep"] == 10
