"""The report of a running program in the status: progress, checkpoint, and the progress of the attempt. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core import names
from rlt_core.job import Job
from rlt_operator.diagnosis.progress import build_checkpoint, build_progress, build_published
from rlt_operator.diagnosis.sandboxes import add_claims
from rlt_operator.lifecycle.masking import list_secrets, mask_known
from rlt_operator.memory.attempt_progress import DeadlineRule, record_report


@dataclass(frozen=True)
class Recording:
    """What of a job decides how its reports are recorded."""

    run_directory: str
    deadline: DeadlineRule
    job: Job | None
    """Where the secrets are; None once they are found."""

    @classmethod
    def of(cls, job: Job, spec: RLTrainingJobSpec) -> Recording:
        """The recording of a job."""
        return cls(names.run_directory(job.name, uid=job.uid, spec=spec), DeadlineRule.of(spec), job)

    @cached_property
    def secrets(self) -> Collection[str]:
        """The plain-text secrets in the spec."""
        return frozenset(list_secrets(self.job)) if self.job else ()

    def without_job(self) -> Recording:
        """The same, which takes some hundred bytes: the parsed job takes 90 KB."""
        found = Recording(self.run_directory, self.deadline, None)
        found.__dict__["secrets"] = self.secrets
        return found


def add_report(
    old: RLTrainingJobStatus,
    status: RLTrainingJobStatus,
    report: ProgressReport,
    recording: Recording,
    interval: float,
    now: datetime,
) -> RLTrainingJobStatus:
    """The status with the report, and without secrets; `old` if only the report is new, and `old` has a recent one.

    `old` is the stored status, and `status` the new one without the report. `interval`: minimum number of seconds
    between two reports in the status.
    """
    update: dict[str, object] = {
        "progress": build_progress(report),
        "checkpoint": build_checkpoint(report, recording.run_directory) or status.checkpoint,
        "published": build_published(report) or status.published,
        "sandboxes": add_claims(status.sandboxes, report.sandboxes),
    }
    if attempt := status.current_attempt:
        progress = record_report(attempt, report, recording.deadline, now, interval=0)
        update["current_attempt"] = attempt.model_copy(update={"progress": progress})
    reported = mask_known(status.model_copy(update=update), status, lambda: recording.secrets)
    return old if status == old and _is_early(old, reported, report, interval) else reported


def _is_early(old: RLTrainingJobStatus, new: RLTrainingJobStatus, report: ProgressReport, interval: float) -> bool:
    """Whether the progress of the stored status is recent, and in the same stage."""
    if old.progress is None or new.progress is None or old.progress.stage != new.progress.stage:
        return False
    return _count_seconds(old.progress.last_updated, report.updated) < interval


def _count_seconds(earlier: str, later: str) -> float:
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):  # a command may report a time that is not RFC 3339
        return float("inf")
