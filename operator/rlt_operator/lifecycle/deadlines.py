"""spec.pendingDeadlineSeconds and spec.activeDeadlineSeconds, and the next time at which a deadline or TTL expires."""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.conditions import keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.diagnosis.progress import format_duration
from rlt_operator.lifecycle.kept_cluster import count_kept_seconds
from rlt_operator.lifecycle.stopping import describe_overdue_stop, stop_program
from rlt_operator.lifecycle.verdict import Verdict, build_cluster_ready, fail_job
from rlt_operator.observation import Observed

C = ConditionType


def pending_deadline_exceeded(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The training did not start within spec.pendingDeadlineSeconds, for any cause."""
    status = observed.job.status
    ray = observed.ray
    since = status.pending_since
    limit = spec.pending_deadline_seconds
    if since is None or limit is None or spec.suspend or count_seconds_since(since, now) < limit:
        return None
    if ray and ray.job and ray.job.status != "PENDING":
        return None
    if observed.is_submitted and (ray is None or ray.unreachable):  # it may run
        return None
    message = f"The training did not start within spec.pendingDeadlineSeconds, {limit} s: {status.message}"
    return fail_job(Reason.PENDING_DEADLINE_EXCEEDED, truncate(message), keep_conditions(status, C.ACCEPTED), None)


def active_deadline_exceeded(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The training has run longer than spec.activeDeadlineSeconds, summed over suspensions and attempts."""
    limit = spec.active_deadline_seconds
    stop = observed.stop_request
    active = count_active_seconds(observed.job.status, now)
    stopping = stop is not None and stop.reason == Reason.DEADLINE_EXCEEDED
    if not stopping and (limit is None or active < limit):
        return None
    message = f"The training has run for {format_duration(active)}: spec.activeDeadlineSeconds is {limit}."
    if waiting := stop_program(observed, spec, Reason.DEADLINE_EXCEEDED, "Ending at spec.activeDeadlineSeconds", now):
        return waiting
    message += describe_overdue_stop(observed, spec, now)
    conditions = {C.CLUSTER_READY: build_cluster_ready(observed, spec)} if observed.cluster else {}
    report = observed.ray.progress if observed.ray else None
    return fail_job(Reason.DEADLINE_EXCEEDED, message, conditions, report)


def count_active_seconds(status: RLTrainingJobStatus, now: datetime) -> float:
    """How long the training has run, without suspensions. Time in which Ray does not answer counts too."""
    before = status.active_seconds or 0
    since = status.active_since
    return before + count_seconds_since(since, now) if since else before


def count_seconds_since(since: str, now: datetime) -> float:
    """Seconds since an RFC 3339 time."""
    return (now - datetime.fromisoformat(since)).total_seconds()


def count_seconds_to_deadline(spec: RLTrainingJobSpec, status: RLTrainingJobStatus, now: datetime) -> float | None:
    """Seconds until the next deadline or TTL of the job expires; None if none applies."""
    if status.completion_time:
        limit = spec.ttl_seconds_after_finished
        spent = count_seconds_since(status.completion_time, now)
        limit = None if limit is None else limit + count_kept_seconds(spec, status)
    elif status.pending_since:
        limit = spec.pending_deadline_seconds
        spent = count_seconds_since(status.pending_since, now)
    elif status.active_since and not (status.current_attempt and status.current_attempt.stop):
        limit = spec.active_deadline_seconds
        spent = count_active_seconds(status, now)
    else:
        return None
    return None if limit is None else max(0.0, limit - spent)
