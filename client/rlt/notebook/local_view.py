"""The view of a local run in a notebook: its progress is read from the lines of its program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlt.metric_text import Step
from rlt.notebook.live_view import LiveView, Steps, keep_steps
from rlt_api.status.job_status import Phase
from rlt_pod.command.console import Progress, build_report, update

MIN_SECONDS = 1.0
"""Minimum time between two updates: a program can complete many steps in a second."""


class LocalView:
    """One output of a notebook cell, with the content of `client.show`."""

    def __init__(self, manifest: Mapping[str, Any], total_steps: int | None, earlier: Sequence[Step]) -> None:
        """Show a job whose program starts. `earlier`: the recorded steps, in case that the run resumes."""
        self._manifest = manifest
        self._view = LiveView()
        self._steps: Steps = {int(step["step"] or 0): step for step in earlier}
        self._progress = Progress(time.time(), total_steps=total_steps, total_is_given=total_steps is not None)
        self._updated = 0.0
        self._update(Phase.RUNNING, "The program starts.")

    def write(self, line: str) -> None:
        """Read a line of the program."""
        before = self._progress
        self._progress = update(self._progress, line, time.time())
        if self._progress == before:
            return
        if metrics := self._progress.metrics:
            step = self._progress.step
            self._steps = {**keep_steps(self._steps, step - 1), step: {"step": step, **metrics}}
        if time.monotonic() - self._updated >= MIN_SECONDS:
            self._update(Phase.RUNNING, "The program runs.")

    def end(self, exit_code: int) -> None:
        """Show the end of the program."""
        phase = Phase.FAILED if exit_code else Phase.SUCCEEDED
        self._update(phase, f"The program has ended with exit code {exit_code}.")

    def _update(self, phase: Phase, message: str) -> None:
        self._updated = time.monotonic()
        status = {"phase": phase, "message": message, "progress": build_progress(self._progress)}
        self._view.update({**self._manifest, "status": status}, [self._steps[number] for number in sorted(self._steps)])


def build_progress(progress: Progress) -> dict[str, Any] | None:
    """Build status.progress of a job, without an ETA. None before the first step if the number of steps is unknown."""
    report = build_report(progress)
    if report is None:
        return None
    step = report["step"]
    total = report["totalSteps"]
    percent = 100 * step // total if total else 0
    return {
        "step": step,
        "totalSteps": total,
        "percent": percent,
        "display": f"{percent}%" if total else f"step {step}",
        "metrics": {name: float(f"{value:.4g}") for name, value in report["metrics"].items()},
        "lastUpdated": report["updated"],
    }
