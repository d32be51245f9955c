"""A poll that changes only the progress of a running job: its plan without the job's spec and lifecycle steps. Pure.

Most reconciliations are of this kind. They would observe what the last one has observed, but for the report, so that
the lifecycle steps would decide the same. tests/test_reported_step.py compares both plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_operator.conditions import find_condition
from rlt_operator.lifecycle.running import RUNNING_INTERVAL_S
from rlt_operator.memory.attempt_progress import RECORD_INTERVAL_S, count_seconds_to_next_report, record_report
from rlt_operator.memory.clocks import count_seconds_to_deadline
from rlt_operator.memory.usage import continue_usage
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import Plan
from rlt_operator.reconcile.report import Recording, add_report
from rlt_operator.reconcile.status import cut_status
from rlt_operator.scaling import wants_more_pods

STAGE = "training"
"""The stage of the reports. At the start and the end of another one, the message changes."""
MAX_UNPLANNED_S = 300.0
"""Maximum time without a whole plan."""


@dataclass(frozen=True)
class Undisturbed:
    """A running job after a reconciliation: what has to be the same for the next one to be about the report alone."""

    version: str
    """The resourceVersion of the job."""
    others: tuple[object, ...]
    """The other objects that the reconciliation observed."""
    ray: Ray
    """The answer of the head."""
    status: RLTrainingJobStatus
    """The fields of the status that a report changes, and no others."""
    recording: Recording
    ends: datetime
    """When the lifecycle steps have to decide: at the next deadline of the job, and after MAX_UNPLANNED_S."""


def keep_undisturbed(
    observed: Observed, planned: Plan, version: str, others: tuple[object, ...], now: datetime
) -> Undisturbed | None:
    """What is kept of the job after this plan, with the resourceVersion of the job; None unless it runs undisturbed."""
    job = observed.job
    status = planned.status or job.status
    attempt = status.current_attempt
    acts = planned.dry_run or planned.apply or planned.submit or planned.stop or planned.delete_cluster
    if acts or observed.rejection or status.phase != Phase.RUNNING or status.disruption or job.newer_attempt:
        return None
    if planned.scale or wants_more_pods(observed):
        return None
    if job.spec is None or observed.ray is None or attempt is None or attempt.stop or attempt.stacks:
        return None
    if not _is_settled(status) or _get_report(observed.ray) is None:
        return None
    deadline = count_seconds_to_deadline(job.spec, status, now)
    seconds = MAX_UNPLANNED_S if deadline is None else min(MAX_UNPLANNED_S, deadline)
    return Undisturbed(
        version,
        others,
        observed.ray,
        RLTrainingJobStatus(
            progress=status.progress,
            checkpoint=status.checkpoint,
            published=status.published,
            sandboxes=status.sandboxes,
            current_attempt=attempt,
            usage=status.usage,
        ),
        Recording.of(job, job.spec).without_job(),
        now + timedelta(seconds=seconds),
    )


def plan_report(before: Undisturbed, ray: Ray | None, interval: float, now: datetime) -> Plan | None:
    """The plan after this answer of the head, whose status has the fields of `before.status`.

    None if the lifecycle steps must decide. `interval`: as in `add_report`.
    """
    report = _get_report(ray)
    attempt = before.status.current_attempt
    if ray is None or report is None or attempt is None or replace(before.ray, progress=report) != ray:
        return None
    usage = before.status.usage
    if usage and usage.state != "running":
        return None
    progress = record_report(attempt, report, before.recording.deadline, now, interval=RECORD_INTERVAL_S)
    base = before.status.model_copy(update={"current_attempt": attempt.model_copy(update={"progress": progress})})
    status = add_report(before.status, base, report, before.recording, interval, now)
    after = min(RUNNING_INTERVAL_S, (before.ends - now).total_seconds())
    if attempt.progress:
        after = min(after, count_seconds_to_next_report(attempt.progress, report, now))
    if after <= 0:
        return None
    if status == before.status:
        return Plan(requeue_after=after)
    status = status.model_copy(update={"usage": continue_usage(usage, report, now)})
    return Plan(status=cut_status(status), requeue_after=after)


def _is_settled(status: RLTrainingJobStatus) -> bool:
    running = find_condition(status, ConditionType.RUNNING)
    reconciling = find_condition(status, ConditionType.RECONCILING)
    return bool(running and running.reason == Reason.STARTED and reconciling and reconciling.reason == Reason.SETTLED)


def _get_report(ray: Ray | None) -> ProgressReport | None:
    """The report of an undisturbed training; None if it may change more than the progress."""
    report = ray.progress if ray and ray.job and ray.job.status == "RUNNING" else None
    if report is None or report.stage != STAGE or not report.step or report.broken_rules or report.checkpoint_error:
        return None
    return report
