"""The record of a run: when it is stored in a ConfigMap of the job. The Ray cluster that has it is released afterwards.

The record is an addition, and accelerators are not kept for it: a head that does not have it, or does not answer, has
none, and an API server that fails to store it has RETRY_S.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.memory.clocks import count_kept_seconds, count_seconds_since
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

RETRY_S = 60.0
"""Time after the end of a program in which the release of its cluster waits for the record to be stored."""


@dataclass(frozen=True)
class FoundRecord:
    """A record that the head has."""

    text: str
    """In base64, not validated."""
    retries: bool
    """Whether the actions after it wait until it is stored."""


def find_record(observed: Observed, verdict: Verdict, status: RLTrainingJobStatus, now: datetime) -> FoundRecord | None:
    """The record to store before the cluster is deleted. None without a record, or if the cluster stays.

    status: as this reconciliation writes it. A cluster that is kept for debugging is deleted much later: its record is
    stored as well when the job ends.
    """
    text = observed.ray.record if observed.ray else None
    if text is None:
        return None
    if verdict.delete_cluster:
        return FoundRecord(text, retries=_count_seconds_since_end(status, now) < RETRY_S)
    job = observed.job
    ends = verdict.is_final and not job.has_ended
    return FoundRecord(text, retries=False) if ends and count_kept_seconds(job.spec, status) else None


def _count_seconds_since_end(status: RLTrainingJobStatus, now: datetime) -> float:
    """Seconds since the job or its attempt ended, or was asked to. Infinite if no time is recorded."""
    stop = status.current_attempt.stop if status.current_attempt else None
    attempt = status.attempts[-1] if status.attempts else None
    times = (status.completion_time, stop.time if stop else None, attempt.completion_time if attempt else None)
    return min((count_seconds_since(time, now) for time in times if time), default=float("inf"))
