"""The new status of a job: the old one, the verdict of this look, and what the trainer reports."""

from __future__ import annotations

from datetime import UTC, datetime

from rlt_api.conditions import ConditionType
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import NetworkStatus, Phase, RayClusterStatus, RLTrainingJobStatus
from rlt_core import names
from rlt_core.job import Job
from rlt_operator.conditions import condition, is_true, merge, timestamp
from rlt_operator.diagnosis.progress import checkpoint, progress
from rlt_operator.lifecycle.attempts import with_attempt
from rlt_operator.lifecycle.deadlines import active_seconds
from rlt_operator.lifecycle.preflight_results import preflight_results
from rlt_operator.lifecycle.verdict import Verdict
from rlt_operator.observation import Observed, cluster_pods, preflight_id, preflighted, submission_id, submitted

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
            "network": network_after(job, verdict),
            **_attempts(old, verdict),
            "preflight": preflight_results(observed),
            **(_columns(job.spec) if job.spec else {}),
            "start_time": old.start_time or (timestamp(_moment(started)) if started else None),
            "completion_time": old.completion_time or (timestamp(_moment(ended) if ended else now) if final else None),
        }
    )
    times = {"pending_since": _pending_since(job, status, now), "active_seconds": _active_seconds(old, status, now)}
    accepted = is_true(status, ConditionType.ACCEPTED)
    runtime = old.runtime_snapshot or (job.runtime if accepted else None)
    return _with_report(status.model_copy(update={**times, "runtime_snapshot": runtime}), observed, verdict)


def network_after(job: Job, verdict: Verdict) -> NetworkStatus | None:
    """What is decided about the network. A job that was suspended is decided upon anew: its nodes are others' now."""
    return None if verdict.phase == Phase.SUSPENDED else verdict.network or job.status.network


def gpus(spec: RLTrainingJobSpec) -> int:
    """Accelerators over all workers."""
    return sum(group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator)


def _columns(spec: RLTrainingJobSpec) -> dict[str, int | str | None]:
    """What `kubectl get` shows of the spec and its runtime."""
    if spec.framework.command:
        return {"gpus": gpus(spec), "model": None, "algorithm": spec.framework.command[0]}
    model = (spec.model.path or "fromSeed") if spec.model else None
    return {"gpus": gpus(spec), "model": model, "algorithm": spec.algorithm.adv_estimator}


def _attempts(old: RLTrainingJobStatus, verdict: Verdict) -> dict[str, object]:
    """The attempts that failed, and how many of them another one followed."""
    attempt, restarts = verdict.attempt, old.restarts or 0
    if attempt is None:
        return {"restarts": restarts}
    restarts = attempt.number if verdict.phase != Phase.FAILED else restarts
    return {"restarts": restarts, "attempts": with_attempt(old.attempts, attempt)}


def _pending_since(job: Job, status: RLTrainingJobStatus, now: datetime) -> str | None:
    """Since when the job waits for its cluster; None while it does not."""
    running = condition(status, ConditionType.RUNNING)
    past = (*_FINAL, ConditionType.CLUSTER_READY)
    if any(is_true(status, type) for type in past) or (running and running.status != "False"):
        return None
    if job.spec is None or job.spec.suspend:
        return None
    return job.status.pending_since or timestamp(now)


def _active_seconds(old: RLTrainingJobStatus, new: RLTrainingJobStatus, now: datetime) -> int | None:
    """A stretch of running is added when it ends."""
    before, after = condition(old, ConditionType.RUNNING), condition(new, ConditionType.RUNNING)
    if before is None or before.status == "False" or (after and after.status == before.status):
        return old.active_seconds
    return round(active_seconds(old, now))


_FINAL = (ConditionType.SUCCEEDED, ConditionType.FAILED)


def _ray_cluster(observed: Observed) -> RayClusterStatus | None:
    job, cluster, spec = observed.job, observed.cluster, observed.job.spec
    if cluster is None or cluster.owner_uid != job.uid or spec is None:
        return None
    id = submission_id(observed)
    known = (observed.ray is not None and observed.ray.job is not None) or submitted(observed)
    checked = (observed.ray is not None and observed.ray.preflight is not None) or preflighted(observed)
    return RayClusterStatus(
        name=names.ray_cluster(job.name),
        ready_workers=sum(pod.ready and not pod.is_head for pod in cluster_pods(observed)),
        desired_workers=sum(group.replicas for group in spec.cluster.workers),
        job_id=id if known else None,
        preflight_job_id=preflight_id(observed) if checked else None,
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
