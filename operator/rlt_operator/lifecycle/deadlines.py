"""spec.pendingDeadlineSeconds and spec.activeDeadlineSeconds, and the next time at which a deadline or TTL expires."""

from __future__ import annotations

from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import RLTrainingJobStatus
from rlt_operator.conditions import find_condition, is_true, keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.diagnosis.progress import format_duration
from rlt_operator.lifecycle.kept_cluster import count_kept_seconds
from rlt_operator.lifecycle.verdict import Verdict, build_cluster_ready, fail_job
from rlt_operator.observation import Observed, is_submitted

C = ConditionType


def pending_deadline_exceeded(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The cluster was not ready within spec.pendingDeadlineSeconds, for any cause."""
    status, ray = observed.job.status, observed.ray
    since, limit = status.pending_since, spec.pending_deadline_seconds
    if since is None or limit is None or spec.suspend or count_seconds_since(since, now) < limit:
        return None
    if (ray and ray.job) or is_submitted(observed) or build_cluster_ready(observed, spec).status == "True":
        return None
    message = f"The cluster was not ready within spec.pendingDeadlineSeconds, {limit} s: {status.message}"
    return fail_job(Reason.PENDING_DEADLINE_EXCEEDED, truncate(message), keep_conditions(status, C.ACCEPTED), None)


def active_deadline_exceeded(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The training has run longer than spec.activeDeadlineSeconds, summed over suspensions and attempts."""
    limit, active = spec.active_deadline_seconds, count_active_seconds(observed.job.status, now)
    if limit is None or active < limit:
        return None
    message = f"The training has run for {format_duration(active)}: spec.activeDeadlineSeconds is {limit}."
    conditions = {C.CLUSTER_READY: build_cluster_ready(observed, spec)} if observed.cluster else {}
    report = observed.ray.progress if observed.ray else None
    return fail_job(Reason.DEADLINE_EXCEEDED, message, conditions, report)


def count_active_seconds(status: RLTrainingJobStatus, now: datetime) -> float:
    """How long the training has run, without suspensions. Running=Unknown, when Ray does not answer, counts too."""
    running = find_condition(status, C.RUNNING)
    before = status.active_seconds or 0
    if running is None or running.status == "False":
        return before
    return before + count_seconds_since(running.last_transition_time, now)


def count_seconds_since(since: str, now: datetime) -> float:
    """Seconds since an RFC 3339 time."""
    return (now - datetime.fromisoformat(since)).total_seconds()


def count_seconds_to_deadline(spec: RLTrainingJobSpec, status: RLTrainingJobStatus, now: datetime) -> float | None:
    """Seconds until the next deadline or TTL of the job expires; None if none applies."""
    if is_true(status, C.SUCCEEDED) or is_true(status, C.FAILED):
        limit, spent = spec.ttl_seconds_after_finished, count_seconds_since(status.completion_time or "", now)
        limit = None if limit is None else limit + count_kept_seconds(spec, status)
    elif status.pending_since:
        limit, spent = spec.pending_deadline_seconds, count_seconds_since(status.pending_since, now)
    elif (running := find_condition(status, C.RUNNING)) and running.status != "False":
        limit, spent = spec.active_deadline_seconds, count_active_seconds(status, now)
    else:
        return None
    return None if limit is None else max(0.0, limit - spent)
