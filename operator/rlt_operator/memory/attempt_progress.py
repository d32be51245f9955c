"""spec.failurePolicy.progressDeadlineSeconds: the latest progress of the program, and the time until its deadline.

Progress is a report that differs from the recorded one. Its time is when the operator observed it, by its own clock:
the clock of the program is only compared for equality. While Ray does not answer, nothing is recorded and no deadline
passes. If it then answers with the same report, the program has made no progress in the meantime either.
"""

from __future__ import annotations

import math
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
    recorded = attempt.progress
    if spec is None or ray is None or ray.job is None or ray.job.status != "RUNNING" or attempt.stacks:
        return recorded
    if recorded and (not _differs(recorded, ray.progress) or _count_seconds_since(recorded, now) < interval):
        return recorded
    report = ray.progress
    return AttemptProgress(
        time=format_time(now),
        step=report.step if report else None,
        reported_time=format_report_time(report.updated) if report else None,
        deadline_seconds=choose_deadline(spec, report),
    )


def choose_deadline(spec: RLTrainingJobSpec, report: ProgressReport | None) -> int | None:
    """Maximum number of seconds from this report to the next; None if there is no deadline.

    The default follows the longest step of the training. Before the first step it is START_DEADLINE_S for the builtin
    trainer, and a command has none, as it may print no steps. After the last step there is none: the time of the export
    is not known.
    """
    deadline = spec.failure_policy.progress_deadline_seconds
    if deadline is not None:
        return deadline or None
    if spec.observability.debugger != "none":
        return None
    before_first_step = START_DEADLINE_S if get_framework(spec).reports_progress else None
    if report is None or report.stage in ("preparing", "warmup"):
        return before_first_step
    if report.stage != "training" or (report.total_steps and report.step >= report.total_steps):
        return None
    longest = report.longest_step_seconds or report.seconds_per_step
    if longest is None:
        return before_first_step
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
    if progress.deadline_seconds is None or _differs(progress, ray.progress):
        return math.inf
    return max(0.0, progress.deadline_seconds - _count_seconds_since(progress, now))


def _differs(recorded: AttemptProgress, report: ProgressReport | None) -> bool:
    if report is None:  # the program has not reported yet, or its server does not answer
        return False
    return (recorded.step, recorded.reported_time) != (report.step, format_report_time(report.updated))


def _count_seconds_since(progress: AttemptProgress, now: datetime) -> float:
    return (now - datetime.fromisoformat(progress.time)).total_seconds()
