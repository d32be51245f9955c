"""How long a job may wait, run, and stay after its end: from its status and the clock. Pure."""

from __future__ import annotations

from datetime import datetime

from rlt_api.conditions import ConditionType
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import RLTrainingJobStatus
from rlt_operator.conditions import condition, is_true


def active_seconds(status: RLTrainingJobStatus, now: datetime) -> float:
    """How long the training has run: the stretches before each suspension, and this one.

    While Ray does not answer (Unknown) the training counts as running.
    """
    running = condition(status, ConditionType.RUNNING)
    before = status.active_seconds or 0
    return before + (elapsed(running.last_transition_time, now) if running and running.status != "False" else 0)


def elapsed(since: str, now: datetime) -> float:
    """Seconds since then."""
    return (now - datetime.fromisoformat(since)).total_seconds()


def due_in(spec: RLTrainingJobSpec, status: RLTrainingJobStatus, now: datetime) -> float | None:
    """Seconds to the next moment at which one of the job's times is up; None if there is none to come."""
    if any(is_true(status, type) for type in (ConditionType.SUCCEEDED, ConditionType.FAILED)):
        limit, spent = spec.ttl_seconds_after_finished, elapsed(status.completion_time or "", now)
    elif status.pending_since:
        limit, spent = spec.pending_deadline_seconds, elapsed(status.pending_since, now)
    elif (running := condition(status, ConditionType.RUNNING)) and running.status != "False":
        limit, spent = spec.active_deadline_seconds, active_seconds(status, now)
    else:
        return None
    return None if limit is None else max(0.0, limit - spent)
