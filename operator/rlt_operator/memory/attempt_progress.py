"""spec.failurePolicy.progressDeadlineSeconds: the latest progress of the program, and the time until its deadline.

Progress is a report that differs from the recorded one. Its time is when the operator observed it, by its own clock:
the clock of the program is only compared for equality. While Ray does not answer, nothing is recorded and no deadline
passes. If it then answers with the same report, the program has made no progress in the meantime either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import AttemptProgress, CurrentAttempt
from rlt_operator.conditions import format_time
from rlt_operator.diagnosis.progress import format_report_time
from rlt_operator.observation import Observed

RECORD_INTERVAL_S = 30.0
"""Time after a record from which progress is recorded even if the status is not written for it (reconcile/status.py),
such as the last report before a hang. The operator reconciles a running job in this interval."""
MIN_DEADLINE_S = 1800
"""Minimum of the default. PyTorch ends a collective without progress after 600 s (NCCL) or 1800 s, with an error that
names it (default_pg_timeout in torch/distributed/constants.py, PyTorch 2.13): the program's own timeouts come first."""
STEPS_TO_DEADLINE = 10
"""The default in steps. NVIDIA's nvidia-resiliency-ext uses five times the longest observed interval (safety_factor),
measured with checkpoints and validations. A first checkpoint or validation may be longer than all steps before it."""

START_DEADLINE_S = 7200
"""The default of the builtin trainer before its first step: for loading the model, each part of a warm-up, a first
validation and the first step. nvidia-resiliency-ext has 3600 s until the first heartbeat of a rank
(initial_rank_heartbeat_timeout)."""
NOTICE_S = 1800
"""Time after which a command without a step gets a notice. It has no default deadline: it may print no steps."""


def record_progress(
    observed: Observed, attempt: CurrentAttempt, now: datetime, *, interval: float = RECORD_INTERVAL_S
) -> AttemptProgress | None:
    """The progress of the attempt after this reconciliation. It starts with the program.

    `interval`: minimum number of seconds between two records.
    """
    ray = observed.ray
    spec = observed.job.spec
    if spec is None or ray is None or ray.job is None or ray.job.status != "RUNNING":
        return attempt.progress
    return record_report(attempt, ray.progress, DeadlineRule.of(spec), now, interval=interval)


def record_report(
    attempt: CurrentAttempt, report: ProgressReport | None, rule: DeadlineRule, now: datetime, *, interval: float
) -> AttemptProgress | None:
    """The progress of a running attempt after this report."""
    recorded = attempt.progress
    if attempt.stacks:
        return recorded
    if recorded and (not _differs(recorded, report) or _count_seconds_since(recorded, now) < interval):
        return recorded
    return AttemptProgress(
        time=format_time(now),
        step=report.step if report else None,
        reported_time=format_report_time(report.updated) if report else None,
        deadline_seconds=choose_deadline(rule, report),
    )


@dataclass(frozen=True)
class DeadlineRule:
    """What of a spec decides the deadline of the next report."""

    seconds: int | None
    """spec.failurePolicy.progressDeadlineSeconds."""
    debugged: bool
    before_first_step: int | None
    """The default before the first step: a command has none, as it may print no steps."""

    @classmethod
    def of(cls, spec: RLTrainingJobSpec) -> DeadlineRule:
        """The rule of a spec."""
        return cls(
            spec.failure_policy.progress_deadline_seconds,
            spec.observability.debugger != "none",
            START_DEADLINE_S if get_framework(spec).reports_progress else None,
        )


def choose_deadline(rule: DeadlineRule, report: ProgressReport | None) -> int | None:
    """Maximum number of seconds from this report to the next; None if there is no deadline.

    The default follows the longest step of the training. After the last step there is none: the time of the export is
    not known.
    """
    if rule.seconds is not None:
        return rule.seconds or None
    if rule.debugged:
        return None
    if report is None or report.stage in ("preparing", "warmup"):
        return rule.before_first_step
    if report.stage != "training" or (report.total_steps and report.step >= report.total_steps):
        return None
    longest = report.longest_step_seconds or report.seconds_per_step
    if longest is None:
        return rule.before_first_step
    return max(MIN_DEADLINE_S, math.ceil(STEPS_TO_DEADLINE * longest))


def count_seconds_to_notice(observed: Observed, now: datetime) -> float:
    """Seconds until a running command has reported no step for NOTICE_S; infinite with a step, or with a deadline.

    progressDeadlineSeconds: 0 disables the notice, too.
    """
    attempt = observed.attempt
    ray = observed.ray
    spec = observed.job.spec
    progress = attempt.progress if attempt else None
    if progress is None or ray is None or spec is None or get_framework(spec).reads_fields:
        return math.inf
    if progress.step or progress.deadline_seconds is not None or (ray.progress and ray.progress.step):
        return math.inf
    if spec.failure_policy.progress_deadline_seconds == 0 or spec.observability.debugger != "none":
        return math.inf
    return max(0.0, NOTICE_S - _count_seconds_since(progress, now))


def count_seconds_to_progress_deadline(observed: Observed, now: datetime) -> float:
    """Seconds until the deadline passes; infinite if there is none, or if there is progress that is not recorded."""
    attempt = observed.attempt
    ray = observed.ray
    progress = attempt.progress if attempt else None
    if progress is None or ray is None or ray.job is None or ray.job.status != "RUNNING":
        return math.inf
    return count_seconds_to_next_report(progress, ray.progress, now)


def count_seconds_to_next_report(progress: AttemptProgress, report: ProgressReport | None, now: datetime) -> float:
    """Seconds until the deadline after the recorded progress; infinite if the report is newer."""
    if progress.deadline_seconds is None or _differs(progress, report):
        return math.inf
    return max(0.0, progress.deadline_seconds - _count_seconds_since(progress, now))


def _differs(recorded: AttemptProgress, report: ProgressReport | None) -> bool:
    if report is None:  # the program has not reported yet, or its server does not answer
        return False
    return (recorded.step, recorded.reported_time) != (report.step, format_report_time(report.updated))


def _count_seconds_since(progress: AttemptProgress, now: datetime) -> float:
    return (now - datetime.fromisoformat(progress.time)).total_seconds()
