"""A job that is followed in a notebook, and elsewhere."""

from __future__ import annotations

import re

import pytest

from rlt import Job
from rlt.live_view import LiveView, build_view, keep_steps

STEPS = [{"step": float(step), "critic/rewards/mean": step / 10} for step in range(1, 6)]


def build_job(step: int, phase: str = "Running") -> Job:
    progress = {
        "step": step,
        "totalSteps": 5,
        "percent": 20 * step,
        "display": f"{20 * step}%",
        "lastUpdated": "2026-01-02T03:04:05Z",
        "metrics": {"reward": step / 10},
    }
    status = {"phase": phase, "message": "5 of 5 steps are done.", "progress": progress}
    return Job.from_manifest({"metadata": {"name": "<sum>"}, "spec": {}, "status": status})


def follow(*states: list[dict[str, float]]) -> str:
    """Show a job with the steps of each state. Returns its last summary."""
    view = LiveView()
    for steps in states:
        job = build_job(len(steps), "Succeeded" if len(steps) == 5 else "Running")
        view.update(job, steps)
        view.update(job, steps)
    return job.summary


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
    pending = Job.from_manifest({"metadata": {"name": "sum"}, "spec": {}})
    html = build_view(pending, [])
    assert "<svg" not in html
    assert "<progress" not in html
    assert "The operator has not reconciled the job yet." in html


def test_a_restart_repeats_the_steps_after_its_checkpoint() -> None:
    assert list(keep_steps({1: {}, 2: {}, 3: {}}, 2)) == [1, 2]
