"""Gates and changed samples of a run directory: what a user's program has written is bounded, and errors are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlt.runs.run import build_run, lack_records, read_run
from rlt.runs.suite_results import MAX_BYTES, MAX_SUITES, parse_changes, read_changes, read_gates
from rlt_api.spec.suite_changes import MAX_SAMPLES, MAX_TEXT

SAMPLE = {"index": 3, "baseScore": 0.0, "score": 1.0, "prompt": "1+1=", "response": "2"}
CHANGES = {"suite": "math", "step": 20, "prompts": 9, "won": 1, "lost": 0, "samples": [SAMPLE]}
GATES = {"math": {"passed": True, "evidence": "mean 0.7", "metric": "mean", "value": 0.7, "gain": None}}


def write(path: Path, name: str, content: object) -> None:
    file = path / "evaluation" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def parse(**changes: object) -> tuple[list[dict[str, Any]], list[str]]:
    notes: list[str] = []
    return parse_changes([json.dumps({**CHANGES, **changes})], notes), notes


def test_the_changes_of_each_suite_are_read(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_changes(tmp_path, notes) == []
    write(tmp_path, "math/changes.json", CHANGES)
    write(tmp_path, "aime/changes.json", {**CHANGES, "suite": "aime", "of a newer trainer": 1})
    assert [each["suite"] for each in read_changes(tmp_path, notes)] == ["aime", "math"]
    assert read_changes(tmp_path, notes)[1] == CHANGES
    assert notes == []


@pytest.mark.parametrize(
    "changes",
    [{"samples": [{**SAMPLE, "score": "x"}]}, {"samples": [{**SAMPLE, "index": 2**60}]}, {"won": None}, {"suite": 1}],
)
def test_invalid_changes_are_left_out_with_a_note(changes: dict[str, object]) -> None:
    assert parse(**changes) == ([], ["The changed samples of a suite cannot be read."])


def test_texts_samples_suites_and_files_are_bounded(tmp_path: Path) -> None:
    (found,), notes = parse(samples=[{**SAMPLE, "response": "x" * 10_000}] * 1000, suite="s" * 10_000)
    assert len(found["samples"]) == 2 * MAX_SAMPLES
    assert len(found["samples"][0]["response"]) == MAX_TEXT
    assert len(found["suite"]) < 300
    assert notes == []
    assert len(parse_changes([json.dumps(CHANGES)] * 99, notes)) == MAX_SUITES
    write(tmp_path, "math/changes.json", " " * (MAX_BYTES + 1))
    assert read_changes(tmp_path, notes) == []
    assert notes == ["changes.json has more than 1 MiB, and is not read."]


def test_a_run_has_its_gates(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert read_run(tmp_path).gates == []
    write(tmp_path, "gates.json", {"step": 20, "gates": GATES})
    assert read_run(tmp_path).gates == [{"suite": "math", "passed": True, "evidence": "mean 0.7"}]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"gates": []}', '{"gates": {"a": 1}}', "[" * 100_000])
def test_gates_that_cannot_be_read_are_named(tmp_path: Path, content: str) -> None:
    notes: list[str] = []
    write(tmp_path, "gates.json", content)
    assert read_gates(tmp_path, notes) == []
    assert notes == ["evaluation/gates.json cannot be read."]


def test_the_report_of_a_job_has_the_condition_promoted() -> None:
    condition = {"type": "Promoted", "status": "False", "reason": "GateFailed", "message": "math: mean 0.2"}
    job = {"metadata": {"name": "sum", "namespace": "a"}, "spec": {}, "status": {"conditions": [condition]}}
    assert build_run(job, lack_records("ended")).details["promoted"] == "False: math: mean 0.2"
