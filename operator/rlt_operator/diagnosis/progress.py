"""From the trainer's report and the program's log to the status: progress, checkpoint, last words. Pure."""

from __future__ import annotations

import math
import re

from pydantic import ValidationError

from rlt_api.driver_report import PROGRESS_PREFIX, TRAINER_ERROR
from rlt_api.status import CheckpointStatus, Progress, ProgressMetrics
from rlt_api.training_config import ProgressReport
from rlt_operator.diagnosis.pods import MAX_MESSAGE_LENGTH, shorten

RAY_PREAMBLE = re.compile(r"\S+ \S+\tINFO job_manager\.py:|Running entrypoint for job ")
"""Lines that Ray writes into the log before the program's own (ray/dashboard/modules/job, Ray 2.60)."""


def progress(report: ProgressReport) -> Progress:
    """The report for people: percent, time left, four significant digits.

    A command need not say how many steps there will be: then its total is 0, and the step stands for the percentage.
    """
    percent = 100 * report.step // report.total_steps if report.total_steps else 0
    left = report.total_steps - report.step
    known = report.seconds_per_step is not None and math.isfinite(report.seconds_per_step) and left > 0
    return Progress(
        stage=report.stage,
        step=report.step,
        total_steps=report.total_steps,
        percent=percent,
        display=f"{percent}%" if report.total_steps else f"step {report.step}",
        eta=duration(left * (report.seconds_per_step or 0)) if known else None,
        tokens_per_second=rounded(report.tokens_per_second),
        metrics=ProgressMetrics(**{name: rounded(value) for name, value in report.metrics.model_dump().items()}),
        last_updated=report.updated,
    )


def checkpoint(report: ProgressReport, run_directory: str) -> CheckpointStatus | None:
    """What has been saved; None if nothing has."""
    if report.latest_checkpoint_step is None and report.exported_path is None:
        return None
    return CheckpointStatus(
        latest_step=report.latest_checkpoint_step,
        path=f"{run_directory}/checkpoints",
        exported_path=report.exported_path,
    )


def parse_report(text: str) -> ProgressReport | None:
    """The report in JSON; None if it is none. Fields of a newer trainer are passed over."""
    try:
        return ProgressReport.model_validate_json(text, extra="ignore")
    except ValidationError:
        return None


def last_report(log: str) -> ProgressReport | None:
    """The last report in the program's output."""
    lines = [line.removeprefix(PROGRESS_PREFIX) for line in log.splitlines() if line.startswith(PROGRESS_PREFIX)]
    return parse_report(lines[-1]) if lines else None


def last_words(log: str) -> str:
    """Why the program failed, in its own words: the trainer's error, or the last lines of its output."""
    lines = [
        line.rstrip()
        for line in log.splitlines()
        if line.strip() and not line.startswith(PROGRESS_PREFIX) and not RAY_PREAMBLE.match(line)
    ]
    errors = [line for line in lines if TRAINER_ERROR in line]
    if errors:
        return shorten(errors[-1][errors[-1].index(TRAINER_ERROR) + len(TRAINER_ERROR) :].strip())
    kept: list[str] = []
    for line in reversed(lines):
        if kept and sum(map(len, kept)) + len(line) > MAX_MESSAGE_LENGTH:
            break
        kept.insert(0, line)
    return shorten("\n".join(kept[-10:]), keep_end=True)


def rounded(value: float | None) -> float | None:
    """Four significant digits; None for what is not finite, which JSON cannot hold."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def duration(seconds: float) -> str:
    """Such as 45s, 3m10s or 2h5m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    return f"{whole // 3600}h{whole % 3600 // 60}m"
