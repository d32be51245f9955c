"""The new status of a job, from the old status, the verdict and the trainer's report."""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import Phase, RayClusterStatus, RLTrainingJobStatus
from rlt_api.validation.resolved_spec import dump_resolved_spec
from rlt_core import names
from rlt_core.job import Job, Manifest
from rlt_operator.conditions import is_true, merge_conditions
from rlt_operator.lifecycle.masking import mask_known, mask_status
from rlt_operator.memory.parts import PARTS
from rlt_operator.observation import Observed
from rlt_operator.reconcile.report import Recording, add_report
from rlt_operator.verdict import Verdict


def build_status(observed: Observed, verdict: Verdict, now: datetime) -> RLTrainingJobStatus:
    """The status after this reconciliation, with its secrets masked.

    Progress, checkpoint and times are kept over a suspension.
    """
    job = observed.job
    old = observed.job.status
    status = old.model_copy(
        update={
            "observed_generation": job.generation,
            "phase": verdict.phase or old.phase or Phase.PENDING,
            "message": verdict.message,
            "ray_cluster": _build_ray_cluster(observed),
            **(_build_columns(job.spec) if job.spec else {}),
            "conditions": merge_conditions(old, verdict.conditions, generation=job.generation, now=now),
            **{field: remember(observed, verdict, now) for field, remember in PARTS.items()},
        }
    )
    if status.resolved_spec is None and is_true(status, ConditionType.ACCEPTED):
        status = keep_resolved_spec(job, status)
    if verdict.report is None or job.spec is None:
        return mask_status(job, status, old)
    recording = Recording.of(job, job.spec)
    masked = mask_known(status, old, lambda: recording.secrets)
    return add_report(old, masked, verdict.report, recording, observed.progress_interval, now)


def keep_resolved_spec(job: Job, status: RLTrainingJobStatus) -> RLTrainingJobStatus:
    """The status with the resolved spec, from the acceptance of the job on."""
    resolved = None if job.resolved_spec is None else dump_resolved_spec(job.resolved_spec)
    return status.model_copy(update={"resolved_spec": resolved, "runtime": job.runtime})


def carry_newer_fields(job: Job, status: Manifest) -> Manifest:
    """The status with what a newer operator has recorded of the same execution on the same RayCluster.

    Otherwise the write would remove these fields, and the newer operator would lack them after a rollback.
    """
    attempt = status.get("currentAttempt")
    before = job.status.current_attempt
    if not attempt or not before or attempt["rayClusterUid"] != before.ray_cluster_uid:
        return status
    if attempt["execution"] != before.execution:
        return status
    return {**status, "currentAttempt": {**job.newer_attempt, **attempt}}


def cut_status(status: RLTrainingJobStatus) -> RLTrainingJobStatus:
    """Cut strings, lists and numbers to the bounds of the schema, which the API server enforces."""
    return RLTrainingJobStatus.model_validate(status.model_dump())


def _build_columns(spec: RLTrainingJobSpec) -> dict[str, int | str | None]:
    """The columns of `kubectl get` that come from the spec and its runtime."""
    gpus = sum(group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator)
    if spec.framework.command:
        return {"gpus": gpus, "model": None, "algorithm": spec.framework.command[0]}
    model = (spec.model.path or "fromSeed") if spec.model else None
    return {"gpus": gpus, "model": model, "algorithm": spec.algorithm.adv_estimator}


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
