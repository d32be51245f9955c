"""The times and clocks of the status, and the time that deadlines and TTL leave. All use the clock of the operator.

From its creation to its end either the pending or the active clock of a job runs, except while the job is suspended or
waits for its next attempt.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.conditions import find_condition, format_time
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict


def keep_start_time(observed: Observed, verdict: Verdict, now: datetime) -> str | None:
    """When Ray first started the program. The clock of Ray's head may be ahead."""
    old = observed.job.status.start_time
    started = observed.ray.job.start_ms if observed.ray and observed.ray.job else None
    if old or not started:
        return old
    return format_time(min(datetime.fromtimestamp(started / 1000, UTC), now))


def keep_completion_time(observed: Observed, verdict: Verdict, now: datetime) -> str | None:
    """When the job ended."""
    return observed.job.status.completion_time or (format_time(now) if verdict.is_final else None)


def run_pending_clock(observed: Observed, verdict: Verdict, now: datetime) -> str | None:
    """Since when the job waits for its program; None if it does not, has no valid spec, or waits for a restart."""
    job = observed.job
    running = verdict.conditions.get(ConditionType.RUNNING)
    restarting = running is not None and running.reason == Reason.RESTARTING
    if _is_active(verdict) or verdict.is_final or restarting or job.spec is None or job.is_suspended:
        return None
    return job.status.pending_since or format_time(now)


def run_active_clock(observed: Observed, verdict: Verdict, now: datetime) -> str | None:
    """Since when the training is active; None if it is not."""
    return (observed.job.status.active_since or format_time(now)) if _is_active(verdict) else None


def add_active_seconds(observed: Observed, verdict: Verdict, now: datetime) -> int | None:
    """The seconds of the active clock before it last stopped."""
    old = observed.job.status
    return old.active_seconds if _is_active(verdict) or not old.active_since else round(count_active_seconds(old, now))


def count_active_seconds(status: RLTrainingJobStatus, now: datetime) -> float:
    """How long the training has run, without suspensions. Time in which Ray does not answer counts too."""
    before = status.active_seconds or 0
    since = status.active_since
    return before + count_seconds_since(since, now) if since else before


def count_accepted_seconds(status: RLTrainingJobStatus, now: datetime) -> float:
    """How long Ray has had the program of the current attempt without starting it; 0 if it does not wait for Ray."""
    attempt = status.current_attempt
    if attempt is None or attempt.accepted_time is None or status.pending_since is None:
        return 0.0
    return count_seconds_since(max(attempt.accepted_time, status.pending_since), now)


def count_seconds_since(since: str, now: datetime) -> float:
    """Seconds since an RFC 3339 time."""
    return (now - datetime.fromisoformat(since)).total_seconds()


def count_kept_seconds(spec: RLTrainingJobSpec | None, status: RLTrainingJobStatus) -> int:
    """How long the cluster of this job is kept after its end. spec.ttlSecondsAfterFinished counts afterwards."""
    failed = find_condition(status, ConditionType.FAILED)
    if spec is None or failed is None or failed.status != "True" or failed.reason == Reason.CANCELLED:
        return 0
    return spec.failure_policy.keep_cluster_seconds


def count_seconds_to_deadline(spec: RLTrainingJobSpec, status: RLTrainingJobStatus, now: datetime) -> float | None:
    """Seconds until the next deadline or TTL of the job expires; None if none applies."""
    if status.completion_time:
        limit = spec.ttl_seconds_after_finished
        spent = count_seconds_since(status.completion_time, now)
        limit = None if limit is None else limit + count_kept_seconds(spec, status)
    elif status.pending_since:
        limit = spec.pending_deadline_seconds
        spent = count_seconds_since(status.pending_since, now)
        accepted = count_accepted_seconds(status, now)
        if accepted and spec.active_deadline_seconds is not None:
            left = spec.active_deadline_seconds - count_active_seconds(status, now) - accepted
            return max(0.0, left if limit is None else min(left, limit - spent))
    elif status.active_since and not (status.current_attempt and status.current_attempt.stop):
        limit = spec.active_deadline_seconds
        spent = count_active_seconds(status, now)
    else:
        return None
    return None if limit is None else max(0.0, limit - spent)


def _is_active(verdict: Verdict) -> bool:
    """Whether the training is active: Running is True, or Unknown because Ray does not answer."""
    running = verdict.conditions.get(ConditionType.RUNNING)
    return running is not None and running.status != "False"
