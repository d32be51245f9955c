"""A job that is followed in a notebook, and elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlt.job_state import summarize
from rlt.notebook.live_view import LiveView, build_view, keep_steps
from rlt.notebook.local_view import build_progress
from rlt_pod.command.console import Progress, update

STEPS = [{"step": float(step), "critic/rewards/mean": step / 10} for step in range(1, 6)]


def build_job(step: int, phase: str = "Running") -> dict[str, Any]:
    progress = {
        "step": step,
        "totalSteps": 5,
        "percent": 20 * step,
        "display": f"{20 * step}%",
        "lastUpdated": "2026-01-02T03:04:05Z",
        "metrics": {"reward": step / 10},
    }
    status = {"phase": phase, "message": "5 of 5 steps are done.", "progress": progress}
    return {"metadata": {"name": "<sum>"}, "spec": {}, "status": status}


def follow(*states: list[dict[str, float]]) -> str:
    """Show a job with the steps of each state. Returns its last summary."""
    view = LiveView()
    for steps in states:
        job = build_job(len(steps), "Succeeded" if len(steps) == 5 else "Running")
        view.update(job, steps)
        view.update(job, steps)
    return summarize(job)


def test_without_a_notebook_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    follow(STEPS[:2], STEPS)
    assert capsys.readouterr().out.splitlines() == [
        "Running: step 2 of 5, reward 0.2",
        "Succeeded: 5 of 5 steps are done.",
    ]


def test_the_view_has_the_state_the_progress_and_a_chart_of_each_metric() -> None:
    steps = [{**step, "actor/grad_norm": 1.0} for step in STEPS[:3]]
    html = build_view(build_job(3), steps)
    assert '<progress value="3" max="5">' in html
    assert re.findall(r"<h3>([^<]+)</h3><div><svg", html) == ["Reward", "Gradient norm"]
    assert "&lt;sum&gt;" in html
    assert "<script" not in html
    assert html.count("<style>") == 1
    assert ":root" not in html, "the style applies to the view alone"


def test_before_the_first_step_the_view_has_no_chart() -> None:
    html = build_view({"metadata": {"name": "sum"}, "spec": {}}, [])
    assert "<svg" not in html
    assert "<progress" not in html
    assert "The operator has not reconciled the job yet." in html


def test_the_progress_of_a_local_run_is_read_from_its_lines() -> None:
    progress = Progress(0.0, total_steps=4, total_is_given=True)
    assert build_progress(progress) == {
        "step": 0,
        "totalSteps": 4,
        "percent": 0,
        "display": "0%",
        "metrics": {},
        "lastUpdated": "1970-01-01T00:00:00.000Z",
    }
    after = build_progress(update(progress, "step:1 - critic/score/mean:0.123456", 1.0))
    assert after
    assert (after["step"], after["percent"], after["metrics"]) == (1, 25, {"reward": 0.1235})
    assert build_progress(Progress(0.0)) is None


def test_a_restart_repeats_the_steps_after_its_checkpoint() -> None:
    assert list(keep_steps({1: {}, 2: {}, 3: {}}, 2)) == [1, 2]
