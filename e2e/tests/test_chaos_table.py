"""The table of docs/reliability.md, and the selection of faults."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rlt_e2e.chaos.__main__ import select
from rlt_e2e.chaos.bucket import find_unfinished
from rlt_e2e.chaos.faults import FAULTS, Fault, Injected
from rlt_e2e.chaos.measure import Outcome, Result, Run, measure
from rlt_e2e.chaos.table import MARK, render, write_page

RANK = Outcome(
    fault="rank",
    victim="train worker in pod sum-workers-worker-b",
    phase="Succeeded",
    attempts=["ProgramFailed"],
    named_s=4.2,
    expected=("ProgramFailed", "sum-workers-worker-b"),
    text="ProgramFailed: ...",
    recovered_s=63.4,
    lost_steps=2,
    same_result=True,
    took_s=140.0,
)


def rows(outcome: Outcome) -> list[str]:
    """Return the cells in the row of the fault rank."""
    line = next(line for line in render({outcome.fault: outcome}).splitlines() if "of a rank" in line)
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize(
    ("outcome", "cells", "survived"),
    [
        (RANK, ["`ProgramFailed`", "4", "yes", "63", "2", "the same"], True),
        (replace(RANK, usage_error=-0.011), ["`ProgramFailed`", "4", "yes", "63", "2", "the same"], False),
        (replace(RANK, named_s=20.0), ["`ProgramFailed`", "20", "no", "63", "2", "the same"], True),
        (replace(RANK, named_s=None), ["`ProgramFailed`", "not named", "no", "63", "2", "the same"], False),
        (
            replace(RANK, named_s=None, expected=(), attempts=[], lost_steps=0),
            ["no end", "", "nothing to name", "63", "0", "the same"],
            True,
        ),
        (
            replace(RANK, same_result=False),
            ["`ProgramFailed`", "4", "yes", "63", "2", "**Succeeded, different**"],
            False,
        ),
        (replace(RANK, phase="Failed"), ["`ProgramFailed`", "4", "yes", "63", "2", "**Failed, different**"], False),
    ],
)
def test_a_row_has_the_verdicts_of_the_fault(outcome: Outcome, cells: list[str], survived: bool) -> None:
    assert rows(outcome) == cells
    assert outcome.is_survived == survived


def test_the_page_keeps_its_text_and_rows_and_lists_every_fault(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    results = tmp_path / "chaos.json"
    kept = f"| {FAULTS[1].title} | no end |  | nothing to name | 13 | 0 | the same |"
    page.write_text(f"before\n{MARK}old\n{kept}\n{MARK}after\n")
    results.write_text(json.dumps({"rank": asdict(RANK)}))
    write_page(results, page)
    text = page.read_text()
    assert text.startswith(f"before\n{MARK}\n| fault |")
    assert text.endswith(f"\n{MARK}after\n")
    assert "old" not in text
    assert kept in text
    assert text.count("| not run |") == len(FAULTS) - 2


def test_a_checkpoint_without_its_marker_is_found_while_it_is_the_latest(tmp_path: Path) -> None:
    checkpoints = tmp_path / "runs/sum-1/checkpoints"
    for file in ("step-8/b/__0_0.distcp", "step-12/complete", "step-12/a/__0_0.distcp"):
        (checkpoints / file).parent.mkdir(parents=True, exist_ok=True)
        (checkpoints / file).touch()
    assert find_unfinished(tmp_path) is None, "retention has deleted the marker of step 8"
    (checkpoints / "step-16/c").mkdir(parents=True)
    assert find_unfinished(tmp_path) is None
    (checkpoints / "step-16/c/.metadata").touch()
    assert find_unfinished(tmp_path) == checkpoints / "step-16"


def test_an_unknown_fault_is_rejected_with_the_known_ones() -> None:
    assert [fault.name for fault in select("drain,rank")] == ["drain", "rank"]
    assert len(select("")) == len(FAULTS) == 27
    with pytest.raises(ValueError, match=r"FAULTS=rank,fire: no fault is named fire: use rank, rank-in-place, "):
        select("rank,fire")


def build_run(injected: Injected) -> Run:
    """Build a run with a step each second, and a rollout pod more from step 8 on. The injection begins after step 3."""
    usage = {"acceleratorSeconds": 0, "by": {}, "days": []}
    lines = [
        (float(step), {"step": step, "timing_s/step": 3.0 if step == 7 else 1.0, "perf/rollout_pods": 2 + (step > 7)})
        for step in range(1, 11)
    ]
    run = Run(0.0, {"status": {"phase": "Succeeded", "usage": usage}}, lines, injected=3.5)
    run.injection = Future()
    run.injection.set_result(injected)
    return run


@pytest.mark.parametrize(
    ("at", "serving", "recovered", "longest"),
    [(None, 0, 0.5, 1.0), (None, 3, 4.5, 3.0), (4.5, 3, 3.5, 3.0), (4.5, 0, 0.5, 1.0)],
)
def test_times_are_from_the_fault_to_the_step_that_has_recovered(
    monkeypatch: pytest.MonkeyPatch, at: float | None, serving: int, recovered: float, longest: float
) -> None:
    monkeypatch.setattr("rlt_e2e.usage.compute_error", lambda job, held: 0.0)
    result = Result({}, "weights")
    fault = Fault("scale-up", "", lambda target: Injected(""), serving_pods=serving)
    outcome = measure(fault, build_run(Injected("", at=at)), result, result)
    assert (outcome.recovered_s, outcome.longest_step_s, outcome.median_step_s) == (recovered, longest, 1.0)


def test_a_job_without_the_new_rollout_pod_has_not_recovered() -> None:
    result = Result({}, "weights")
    fault = Fault("scale-up", "", lambda target: Injected(""), serving_pods=4)
    with pytest.raises(ValueError, match="no step had 4 rollout pods"):
        measure(fault, build_run(Injected("")), result, result)
