"""Progress, checkpoint and error message, from the trainer's report and the program's log. Pure."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import ValidationError

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import CheckpointStatus, Progress, ProgressMetrics, PublishedModel
from rlt_operator.conditions import format_time
from rlt_operator.diagnosis.pods import MAX_MESSAGE_LENGTH, truncate
from rlt_pod.report.driver_report import PROGRESS_PREFIX, TRAINER_ERROR

UNKNOWN_TIME = "1970-01-01T00:00:00Z"
"""Time of a report whose own time is not RFC 3339."""
EXIT_CODE = re.compile(r"failed with exit code (\d{1,3})[,.]")
"""Ray's message about a failed job (ray/dashboard/modules/job/job_supervisor.py, Ray 2.60)."""
STEP_LINE = re.compile(r"step:\d+ - ")
"""The begin of a line with the metrics of a step (rlt_pod/report/step_line.py)."""
RAY_PREAMBLE = re.compile(r"\S+ \S+\tINFO job_manager\.py:")
RAY_ENTRYPOINT = re.compile(r"Running entrypoint for job \S+: ")
"""Lines that Ray writes to the log before the program's output (ray/dashboard/modules/job, Ray 2.60). The entrypoint
can have several lines."""


def build_progress(report: ProgressReport) -> Progress:
    """The report for people: percentage, time left, four significant digits.

    A command may not report its total number of steps. Then the total is 0 and the step replaces the percentage.
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
        eta=format_duration(left * (report.seconds_per_step or 0)) if known else None,
        tokens_per_second=round_metric(report.tokens_per_second),
        reward=round_metric(report.metrics.reward if report.reward is None else report.reward),
        metrics=ProgressMetrics(**{name: round_metric(value) for name, value in report.metrics.model_dump().items()}),
        last_updated=format_report_time(report.updated),
    )


def build_checkpoint(report: ProgressReport, run_directory: str) -> CheckpointStatus | None:
    """The latest checkpoint and export; None if nothing is saved."""
    if report.latest_checkpoint_step is None and report.exported_path is None:
        return None
    return CheckpointStatus(
        latest_step=report.latest_checkpoint_step,
        path=report.checkpoint_directory or f"{run_directory}/checkpoints",
        exported_path=report.exported_path,
    )


def build_published(report: ProgressReport) -> list[PublishedModel]:
    """The places of the model, without the reasons of failures, which a condition has."""
    return [PublishedModel(url=each.url, revision=each.revision) for each in report.published]


def parse_report(text: str) -> ProgressReport | None:
    """Parse a report; None if the text is not one. Fields of a newer trainer are ignored."""
    try:
        return ProgressReport.model_validate_json(text, extra="ignore")
    except ValidationError:
        return None


def parse_last_report(log: str) -> ProgressReport | None:
    """The last report in the program's output."""
    lines = [line.removeprefix(PROGRESS_PREFIX) for line in log.splitlines() if line.startswith(PROGRESS_PREFIX)]
    return parse_report(lines[-1]) if lines else None


def extract_error(log: str) -> str:
    """The trainer's error message, or the last lines of the program's output."""
    output = [line.rstrip() for line in _list_output_lines(log) if line.strip()]
    lines = [line for line in output if not line.startswith(PROGRESS_PREFIX) and not STEP_LINE.match(line)]
    errors = [line for line in lines if TRAINER_ERROR in line]
    if errors:
        return truncate(errors[-1][errors[-1].index(TRAINER_ERROR) + len(TRAINER_ERROR) :].strip())
    kept: list[str] = []
    for line in reversed(lines):
        if kept and sum(map(len, kept)) + len(line) > MAX_MESSAGE_LENGTH:
            break
        kept.insert(0, line)
    return truncate("\n".join(kept[-10:]), keep_end=True)


def find_exit_code(message: str) -> int | None:
    """The exit code of the program, from Ray's message about the job. None without one."""
    found = EXIT_CODE.search(message)
    return int(found[1]) if found else None


def find_signal(message: str) -> str | None:
    """The signal that ended the program, from Ray's message about the job: exit code 128 + N, as in shells.

    None for SIGTERM: programs handle it, and their output has the reason.
    """
    number = (find_exit_code(message) or 0) - 128
    if number == signal.SIGTERM or number not in set(signal.Signals):
        return None
    return signal.Signals(number).name


def _list_output_lines(log: str) -> list[str]:
    """The lines without those that Ray writes before them."""
    lines = [line for line in log.splitlines() if not RAY_PREAMBLE.match(line)]
    start = next((index for index, line in enumerate(lines) if RAY_ENTRYPOINT.match(line)), None)
    if start is None:
        return lines
    return [*lines[:start], *lines[_find_end_of_command(lines, start) :]]


def _find_end_of_command(lines: Sequence[str], start: int) -> int:
    """The index after the last line of a command that shlex.join has quoted; the next one if a quote stays open."""
    quote = ""
    for index in range(start, len(lines)):
        for character in lines[index]:
            if character in "'\"" and quote in ("", character):
                quote = "" if quote else character
        if not quote:
            return index + 1
    return start + 1


def format_report_time(text: str) -> str:
    """RFC 3339 in UTC. The API server rejects a status with another format; a program may report anything."""
    try:
        time = datetime.fromisoformat(text)
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        return format_time(time) if time.year >= 1970 else UNKNOWN_TIME
    except (ValueError, OverflowError):
        return UNKNOWN_TIME


def round_metric(value: float | None) -> float | None:
    """Round to four significant digits; None if not finite, because JSON has no such number."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def format_duration(seconds: float) -> str:
    """Format as 45s, 3m10s or 2h5m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    return f"{whole // 3600}h{whole % 3600 // 60}m"
