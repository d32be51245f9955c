"""Observed values for the tests: a job and its environment in the states of its lifecycle."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import CurrentAttempt, RuntimeSnapshot
from rlt_api.validation.resolved_spec import dump_resolved_spec
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, Manifest, parse_job
from rlt_core.network_status import build_network_status
from rlt_operator.observation import Observed, Pod, Ray, RayCluster, RayJob, RayPreflight, RayStep
from rlt_operator.reconcile.plan import plan
from rlt_pod.report.driver_report import PROGRESS_PREFIX

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"
CLUSTER_UID = "99999999-8888-7777-6666-555555555555"
HEAD_UID = "uid-sum-head-a"

SPEC: dict[str, Any] = {
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 200, "trainBatchSize": 32},
    "cluster": {
        "image": "localhost/rlt-trainer:cpu",
        "workers": [{"replicas": 2, "resources": {"cpu": "1", "memory": "4Gi"}}],
    },
}

COMMAND_SPEC: dict[str, Any] = {
    "framework": {"type": "command", "command": ["python", "-c", "print('a b')"]},
    "cluster": SPEC["cluster"],
}

PREPARED_SPEC: dict[str, Any] = {
    **COMMAND_SPEC,
    "framework": {
        **COMMAND_SPEC["framework"],
        "prepare": [
            {"name": "data", "command": ["python3", "-m", "download", "a b"]},
            {"name": "model", "command": ["bash", "-c", "git clone x && cd x"]},
        ],
    },
    "storage": {"claimName": "runs"},
}
"""A command with two steps before it, whose files are on a PVC."""

ON_GPUS: dict[str, Any] = {
    **COMMAND_SPEC,
    "cluster": {
        "image": "registry.example/trainer",
        "workers": [
            {
                "replicas": 2,
                "resources": {"cpu": "32", "memory": "512Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            }
        ],
    },
}
"""A command on two nodes with eight GPUs each."""


def manifest(spec: dict[str, Any] = SPEC, *, name: str = "sum", labels: dict[str, str] | None = None) -> Manifest:
    metadata = {"namespace": "demo", "name": name, "uid": UID, "generation": 1, "resourceVersion": "7"}
    return {"metadata": {**metadata, "labels": labels or {}}, "spec": spec}


def job(
    spec: dict[str, Any] = SPEC,
    *,
    name: str = "sum",
    labels: dict[str, str] | None = None,
    runtime: RuntimeSnapshot | None = None,
) -> Job:
    return decided(parse_job(manifest(spec, name=name, labels=labels), runtime))


def decided(job: Job, nodes: tuple[Node, ...] = ()) -> Job:
    """The job with its resolved spec and a fabric decision from these nodes in the status."""
    if job.spec is None:
        return job
    update: dict[str, Any] = {"network": build_network_status(job, job.spec, nodes)}
    if not job.findings and (job.runtime or not job.spec.runtime_ref):
        update |= {"resolved_spec": dump_resolved_spec(job.resolved_spec or {}), "runtime": job.runtime}
    return replace(job, status=job.status.model_copy(update=update))


def cluster(**changes: Any) -> RayCluster:
    ray_cluster = RayCluster(CLUSTER_UID, "RLTrainingJob", UID, created=NOW, deleting=False, has_status=True)
    return replace(ray_cluster, **changes)


def pods(*, ready: bool = True, cluster_uid: str = CLUSTER_UID) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            name,
            f"uid-{name}",
            cluster_uid,
            is_head="head" in name,
            deleting=False,
            phase="Running",
            ready=ready,
            cluster_name="sum",
        )
        for name in ("sum-head-a", "sum-workers-worker-b", "sum-workers-worker-c")
    )


def report(step: int = 90, **changes: Any) -> ProgressReport:
    numbers = {"stage": "training", "step": step, "total_steps": 200, "seconds_per_step": 2.0}
    return ProgressReport.model_validate({**numbers, "updated": "2026-01-02T03:04:05Z", **changes})


def running(step: int = 90) -> Ray:
    return Ray(job=RayJob("RUNNING", start_ms=1767323000000), progress=report(step))


def ended(status: Any, log: str = "", message: str = "") -> Ray:
    """The Ray job has ended now. A stopped one has ended half a minute ago, so that its cause would be known."""
    end_ms = 1767323015000 if status == "STOPPED" else 1767323045000
    return Ray(job=RayJob(status, message, start_ms=1767323000000, end_ms=end_ms), log=log)


def checks(status: Any, log: str = "") -> Ray:
    """The preflight checks."""
    return Ray(preflight=RayPreflight(RayJob(status), None if status in ("PENDING", "RUNNING") else log))


def preparing(status: Any, log: str = "", *, step: str = "data") -> Ray:
    """A step of spec.framework.prepare."""
    ended = status not in ("PENDING", "RUNNING")
    return Ray(step=RayStep(f"sum-99999999-prepare-{step}", RayJob(status), log if ended else None))


def final_log(step: int = 200) -> str:
    line = report(step, stage="finished", exported_path="/mnt/rlt/runs/sum-11111111/export").model_dump_json(
        by_alias=True
    )
    return f"hello\n{PROGRESS_PREFIX}{line}\n"


def recorded(observed: Observed) -> Observed:
    """The observation with a status that names the head as the one that gets the Ray jobs."""
    attempt = CurrentAttempt(ray_cluster_uid=CLUSTER_UID, head_pod_uid=HEAD_UID)
    status = observed.job.status.model_copy(update={"current_attempt": attempt})
    return replace(observed, job=replace(observed.job, status=status))


def after(observed: Observed, *, now: datetime = NOW) -> Observed:
    """The next observation, if only the status has changed."""
    decided = plan(observed, now)
    status = decided.status or observed.job.status
    return replace(observed, job=replace(observed.job, status=status))


def changed(observed: Observed, **changes: Any) -> Observed:
    """The observation after an edit of the spec."""
    assert observed.job.spec
    spec = observed.job.spec.model_copy(update=changes)
    return replace(observed, job=replace(observed.job, spec=spec, generation=observed.job.generation + 1))


def suspend(observed: Observed, suspend: bool = True) -> Observed:
    return changed(observed, suspend=suspend)


FRESH = Observed(job())
PROVISIONING = replace(FRESH, cluster=cluster(), pods=pods(ready=False))
READY = recorded(replace(FRESH, cluster=cluster(), pods=pods(), ray=Ray()))
RUNNING = replace(READY, ray=running())
STARTED = after(RUNNING)
