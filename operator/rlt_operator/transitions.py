"""Metrics of what changes once in a job: its start, its first step, preflight checks, the ends of attempts and the job.

They are counted when the new status is written, so that each change counts once over restarts of the operator.
"""

from __future__ import annotations

from datetime import datetime

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core.job import Job
from rlt_operator import metrics
from rlt_operator.conditions import bound_reason, get_reason

STAGES = ("network", "services", "data", "training")
"""Stages of the preflight checks."""


def observe_transition(job: Job, new: RLTrainingJobStatus, now: datetime) -> None:
    """Count what the new status of the job has, and its old one lacks."""
    old = job.status
    if job.created and new.start_time and not old.start_time:
        metrics.START_SECONDS.observe(_count_seconds(job.created, datetime.fromisoformat(new.start_time)))
    if job.created and _get_step(new) and not _get_step(old):
        metrics.FIRST_STEP_SECONDS.observe(_count_seconds(job.created, now))
    if new.completion_time and not old.completion_time:
        metrics.JOBS_ENDED.labels(phase=new.phase or "", reason=get_reason(new)).inc()
    last = max((attempt.number for attempt in old.attempts), default=0)
    for attempt in new.attempts:
        if attempt.number > last:
            metrics.ATTEMPTS_ENDED.labels(reason=bound_reason(attempt.reason)).inc()
    stages = _sum_stages(new)
    if stages != _sum_stages(old):
        for stage, seconds in stages.items():
            metrics.PREFLIGHT_SECONDS.labels(stage=stage).observe(seconds)


def _sum_stages(status: RLTrainingJobStatus) -> dict[str, float]:
    """Duration of each preflight stage. Checks of one measurement have the same duration."""
    measured = {(check.stage, check.seconds) for check in status.preflight}
    return {
        stage: sum(seconds or 0.0 for each, seconds in measured if each == stage)
        for stage in STAGES
        if any(each == stage for each, _ in measured)
    }


def _get_step(status: RLTrainingJobStatus) -> int:
    return status.progress.step if status.progress else 0


def _count_seconds(start: str, end: datetime) -> float:
    return max(0.0, (end - datetime.fromisoformat(start)).total_seconds())
