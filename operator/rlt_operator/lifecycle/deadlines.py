"""spec.pendingDeadlineSeconds and spec.activeDeadlineSeconds."""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_operator.conditions import keep_conditions
from rlt_operator.diagnosis.pods import truncate
from rlt_operator.diagnosis.progress import format_duration
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.stopping import describe_overdue_stop, stop_program
from rlt_operator.memory.clocks import count_accepted_seconds, count_active_seconds, count_seconds_since
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

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
    """The training has run longer than spec.activeDeadlineSeconds, summed over suspensions and attempts.

    Time in which the head reports the accepted program as PENDING counts: nothing else limits a head that always does.
    """
    limit = spec.active_deadline_seconds
    stop = observed.stop_request
    status = observed.job.status
    active = count_active_seconds(status, now)
    if observed.is_submitted:
        active += count_accepted_seconds(status, now)
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
