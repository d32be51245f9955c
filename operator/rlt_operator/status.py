"""The new status of a job: the old one, the verdict of this look, and what the trainer reports."""

from __future__ import annotations

from datetime import UTC, datetime

from rlt_api.conditions import ConditionType
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import Phase, RayClusterStatus, RLTrainingJobStatus
from rlt_operator import names
from rlt_operator.conditions import merge, timestamp
from rlt_operator.observation import Observed, cluster_pods, submission_id
from rlt_operator.progress import checkpoint, progress
from rlt_operator.verdict import Verdict

PROGRESS_INTERVAL_S = 2.5
"""At most so often is a status written for nothing but progress."""


def new_status(observed: Observed, verdict: Verdict, now: datetime) -> RLTrainingJobStatus:
    """The status after this look. Progress, checkpoint and times outlive a suspension."""
    job, old = observed.job, observed.job.status
    ray_job = observed.ray.job if observed.ray else None
    started = ray_job.start_ms if ray_job else None
    ended = ray_job.end_ms if ray_job else None
    final = any(verdict.claims[type].status == "True" for type in _FINAL if type in verdict.claims)
    status = old.model_copy(
        update={
            "observed_generation": job.generation,
            "phase": verdict.phase or old.phase or Phase.PENDING,
            "message": verdict.message,
            "conditions": merge(old, verdict.claims, generation=job.generation, now=now),
            "ray_cluster": _ray_cluster(observed),
            "gpus": gpus(job.spec) if job.spec else old.gpus,
            "start_time": old.start_time or (timestamp(_moment(started)) if started else None),
            "completion_time": old.completion_time or (timestamp(_moment(ended) if ended else now) if final else None),
        }
    )
    return _with_report(status, observed, verdict)


def gpus(spec: RLTrainingJobSpec) -> int:
    """Accelerators over all workers."""
    return sum(group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator)


_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)


def _ray_cluster(observed: Observed) -> RayClusterStatus | None:
    job, cluster, spec = observed.job, observed.cluster, observed.job.spec
    if cluster is None or cluster.owner_uid != job.uid or spec is None:
        return None
    id = submission_id(observed)
    before = job.status.ray_cluster
    known = (observed.ray is not None and observed.ray.job is not None) or (before is not None and before.job_id == id)
    return RayClusterStatus(
        name=names.ray_cluster(job.name),
        ready_workers=sum(pod.ready and not pod.is_head for pod in cluster_pods(observed)),
        desired_workers=sum(group.replicas for group in spec.cluster.workers),
        job_id=id if known else None,
    )


def _with_report(status: RLTrainingJobStatus, observed: Observed, verdict: Verdict) -> RLTrainingJobStatus:
    job, old, report = observed.job, observed.job.status, verdict.report
    if report is None or job.spec is None:
        return status
    if (
        status == old  # nothing but progress
        and old.progress
        and old.progress.stage == report.stage
        and _seconds(old.progress.last_updated, report.updated) < PROGRESS_INTERVAL_S
    ):
        return old
    run_directory = names.run_directory(job.name, uid=job.uid, spec=job.spec)
    update = {"progress": progress(report), "checkpoint": checkpoint(report, run_directory) or old.checkpoint}
    return status.model_copy(update=update)


def _seconds(earlier: str, later: str) -> float:
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):  # not RFC 3339: some program's own idea of a time
        return PROGRESS_INTERVAL_S


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
