"""spec.framework.prepare: a Ray job for each step, before the preflight checks and the program."""

from __future__ import annotations

from datetime import datetime

from rlt_api.blocks.framework import PrepareStep
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase, PreparedStep
from rlt_core.entrypoint import build_step_entrypoint
from rlt_operator.conditions import ConditionUpdate, format_time
from rlt_operator.diagnosis.progress import extract_error
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.restarts import restart_failed_attempt
from rlt_operator.lifecycle.shared_verdicts import fail_job
from rlt_operator.lifecycle.submission import submit
from rlt_operator.observation import Observed, RayStep
from rlt_operator.verdict import WAITING_INTERVAL_S, Submission, Verdict

C = ConditionType


def preparation_pending(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """A step has not succeeded, or has failed. The status holds its success before what follows is submitted."""
    step = observed.pending_step
    ray = observed.ray
    if step is None or ray is None or ray.unreachable:
        return None
    cluster = build_cluster_ready(observed, spec)
    running = observed.ray_step
    if running is None:
        return _submit(observed, spec, step, cluster) if cluster.status == "True" else None
    if running.job.status in ("FAILED", "STOPPED"):
        releasing = {C.CLUSTER_READY: cluster, C.RECONCILING: ConditionUpdate("True", Reason.RELEASING)}
        return restart_failed_attempt(observed, fail_job(*_describe_end(step, running), releasing, None), now)
    head = observed.head
    if running.job.status == "SUCCEEDED" and head:
        message = f"Step {step.name} of spec.framework.prepare has succeeded."
        prepared = PreparedStep(name=step.name, head_pod_uid=head.uid, completion_time=format_time(now))
        return _wait(message, cluster, prepared)
    progress = f": {running.progress}" if running.progress else ""
    return _wait(f"Step {step.name} of spec.framework.prepare is running{progress}.", cluster)


def _wait(message: str, cluster: ConditionUpdate, prepared: PreparedStep | None = None) -> Verdict:
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", Reason.PREPARING, message)}
    requeue_after = 0.0 if prepared else WAITING_INTERVAL_S
    return Verdict(message, Phase.PROVISIONING, conditions, prepared=prepared, requeue_after=requeue_after)


def _submit(observed: Observed, spec: RLTrainingJobSpec, step: PrepareStep, cluster: ConditionUpdate) -> Verdict | None:
    job = observed.job
    step_id = observed.step_id
    if step_id is None:
        return None
    metadata = {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}
    name = f"step {step.name} of spec.framework.prepare"
    submission = Submission(name, step_id, build_step_entrypoint(job, spec, step), metadata)
    message = f"The cluster is ready; {name} is being submitted."
    return submit(observed, submission, cluster, ConditionUpdate("False", Reason.PREPARING, message))


def _describe_end(step: PrepareStep, ended: RayStep) -> tuple[Reason, str]:
    name = f"Step {step.name} of spec.framework.prepare"
    if ended.job.status == "STOPPED":
        return Reason.STOPPED, f"{name} was stopped outside rlt."
    error = extract_error(ended.log or ended.job.message)
    return Reason.PREPARE_FAILED, f"{name} failed: {error}" if error else f"{name} exited without an error message."
