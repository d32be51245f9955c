"""The new status of a job, from the old status, the verdict and the trainer's report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase, PreparedStep, RayClusterStatus, RLTrainingJobStatus
from rlt_core import names
from rlt_core.job import Job, Manifest
from rlt_operator.conditions import format_time, is_true, merge_conditions
from rlt_operator.diagnosis.progress import build_checkpoint, build_progress
from rlt_operator.lifecycle.attempt import record_attempt
from rlt_operator.lifecycle.deadlines import count_active_seconds
from rlt_operator.lifecycle.disruptions import update_disruption
from rlt_operator.lifecycle.pause import is_paused, is_suspended
from rlt_operator.lifecycle.preflight_memory import remember
from rlt_operator.lifecycle.preflight_results import list_preflight_results
from rlt_operator.lifecycle.progress_deadline import record_progress
from rlt_operator.lifecycle.restarts import add_attempt
from rlt_operator.lifecycle.verdict import Verdict, choose_network
from rlt_operator.observation import Observed

FINAL_CONDITIONS = (ConditionType.SUCCEEDED, ConditionType.FAILED)
"""The job has ended if one of them is True."""


def build_status(observed: Observed, verdict: Verdict, now: datetime) -> RLTrainingJobStatus:
    """The status after this reconciliation. Progress, checkpoint and times are kept over a suspension."""
    job = observed.job
    old = observed.job.status
    started = observed.ray.job.start_ms if observed.ray and observed.ray.job else None
    final = any(verdict.conditions[type].status == "True" for type in FINAL_CONDITIONS if type in verdict.conditions)
    status = old.model_copy(
        update={
            "observed_generation": job.generation,
            "phase": verdict.phase or old.phase or Phase.PENDING,
            "message": verdict.message,
            "conditions": merge_conditions(old, verdict.conditions, generation=job.generation, now=now),
            "ray_cluster": _build_ray_cluster(observed),
            "network": choose_network(job, verdict),
            **_build_attempts(old, verdict),
            "findings": old.findings if verdict.findings is None else list(verdict.findings),
            "pause": None if final else old.pause if is_paused(job) else verdict.pause,
            "current_attempt": record_attempt(observed, verdict, now),
            "prepared": _build_prepared(old, verdict),
            "disruption": update_disruption(observed, now),
            "preflight": list_preflight_results(observed),
            "preflight_passed": remember(observed),
            **(_build_columns(job.spec) if job.spec else {}),
            "start_time": old.start_time or (_format_milliseconds(started, latest=now) if started else None),
            "completion_time": old.completion_time or (format_time(now) if final else None),
            **_update_clocks(job, verdict, now, final=final),
        }
    )
    if status.resolved_spec is None and is_true(status, ConditionType.ACCEPTED):
        status = keep_resolved_spec(job, status)
    return _add_report(status, observed, verdict, now)


def keep_resolved_spec(job: Job, status: RLTrainingJobStatus) -> RLTrainingJobStatus:
    """The status with the resolved spec, from the acceptance of the job on."""
    return status.model_copy(update={"resolved_spec": job.resolved_spec, "runtime": job.runtime})


def build_status_manifest(job: Job, status: Mapping[str, object]) -> Manifest:
    """Build the status for server-side apply. Rejected if the job has changed since it was observed."""
    metadata = {"name": job.name, "namespace": job.namespace, "uid": job.uid, "resourceVersion": job.resource_version}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "status": status}


def cut_status(status: RLTrainingJobStatus) -> RLTrainingJobStatus:
    """Cut strings, lists and numbers to the bounds of the schema, which the API server enforces."""
    return RLTrainingJobStatus.model_validate(status.model_dump())


def count_gpus(spec: RLTrainingJobSpec) -> int:
    """The accelerators of all workers."""
    return sum(group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator)


def _build_columns(spec: RLTrainingJobSpec) -> dict[str, int | str | None]:
    """The columns of `kubectl get` that come from the spec and its runtime."""
    if spec.framework.command:
        return {"gpus": count_gpus(spec), "model": None, "algorithm": spec.framework.command[0]}
    model = (spec.model.path or "fromSeed") if spec.model else None
    return {"gpus": count_gpus(spec), "model": model, "algorithm": spec.algorithm.adv_estimator}


def _build_attempts(old: RLTrainingJobStatus, verdict: Verdict) -> dict[str, object]:
    """The attempts that have ended, and how many new ones followed a failure or a disruption."""
    attempt = verdict.attempt
    restarts = old.restarts or 0
    disruptions = old.disruptions or 0
    if attempt is None:
        return {"restarts": restarts}
    is_new = all(each.ray_cluster_uid != attempt.ray_cluster_uid for each in old.attempts)
    if is_new and verdict.phase != Phase.FAILED:
        restarts += attempt.disruption is None
        disruptions += attempt.disruption is not None
    counts = {"restarts": restarts, "disruptions": disruptions or None}
    return {**counts, "attempts": add_attempt(old.attempts, attempt)}


def _build_prepared(old: RLTrainingJobStatus, verdict: Verdict) -> list[PreparedStep]:
    """The steps that have succeeded. A step that a new head pod has run replaces an earlier pod's."""
    done = verdict.prepared
    return [*(each for each in old.prepared if each.name != done.name), done] if done else old.prepared


def _update_clocks(job: Job, verdict: Verdict, now: datetime, *, final: bool) -> dict[str, object]:
    """The times for the deadlines. From its creation to its end either one runs, except while the job is suspended or
    waits for its next attempt.

    The training is active while the verdict is Running=True, or Unknown because Ray does not answer.
    """
    old = job.status
    running = verdict.conditions.get(ConditionType.RUNNING)
    active = running is not None and running.status != "False"
    restarting = running is not None and running.reason == Reason.RESTARTING
    pending = not (active or final or restarting) and job.spec is not None and not is_suspended(job)
    return {
        "pending_since": (old.pending_since or format_time(now)) if pending else None,
        "active_since": (old.active_since or format_time(now)) if active else None,
        "active_seconds": old.active_seconds
        if active or not old.active_since
        else round(count_active_seconds(old, now)),
    }


def _build_ray_cluster(observed: Observed) -> RayClusterStatus | None:
    spec = observed.job.spec
    ray = observed.ray
    if observed.owned_cluster is None or spec is None or not observed.is_reconciled:
        return None
    has_job = (ray is not None and ray.job is not None) or observed.is_submitted
    has_preflight = (ray is not None and ray.preflight is not None) or observed.is_preflight_submitted
    return RayClusterStatus(
        name=names.ray_cluster(observed.job.name),
        ready_workers=sum(pod.ready and not pod.is_head for pod in observed.cluster_pods),
        desired_workers=sum(group.replicas for group in spec.cluster.workers),
        job_id=observed.submission_id if has_job else None,
        preflight_job_id=observed.preflight_id if has_preflight else None,
    )


def _add_report(
    status: RLTrainingJobStatus, observed: Observed, verdict: Verdict, now: datetime
) -> RLTrainingJobStatus:
    job = observed.job
    old = observed.job.status
    report = verdict.report
    if report is None or job.spec is None:
        return status
    if (
        status == old  # only the progress differs
        and old.progress
        and old.progress.stage == report.stage
        and _count_seconds(old.progress.last_updated, report.updated) < observed.progress_interval
    ):
        return old
    run_directory = names.run_directory(job.name, uid=job.uid, spec=job.spec)
    update: dict[str, object] = {
        "progress": build_progress(report),
        "checkpoint": build_checkpoint(report, run_directory) or old.checkpoint,
    }
    if attempt := status.current_attempt:
        progress = record_progress(observed, attempt, now, interval=0)
        update["current_attempt"] = attempt.model_copy(update={"progress": progress})
    return status.model_copy(update=update)


def _count_seconds(earlier: str, later: str) -> float:
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):  # a command may report a time that is not RFC 3339
        return float("inf")


def _format_milliseconds(milliseconds: int, *, latest: datetime) -> str:
    """A time of Ray's head, whose clock may be ahead."""
    return format_time(min(datetime.fromtimestamp(milliseconds / 1000, UTC), latest))
