"""A job that has a Ray cluster: it comes up, the training runs, and is suspended."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Phase
from rlt_core.entrypoint import build_entrypoint
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import diagnose, shorten
from rlt_operator.diagnosis.progress import last_report
from rlt_operator.lifecycle.queueing import waiting_for
from rlt_operator.lifecycle.verdict import (
    SETTLED,
    Submission,
    Verdict,
    cluster_condition,
    release,
    remains,
    waiting,
    was_stopped,
)
from rlt_operator.observation import Observed, cluster_pods, submission_id, submitted

RUNNING_INTERVAL_S = 2.0
"""Between looks at a job that runs: progress in the status is never older than 5 s."""
IDLE_INTERVAL_S = 60.0
"""Between looks at a suspended job."""
QUEUE_INTERVAL_S = 5.0
"""Between looks at a job in a queue, for what Kueue says of it. (Its admission also wakes it.)"""
KUBERAY_PATIENCE_S = 15.0
"""A RayCluster that KubeRay has not looked at for so long is worth a word."""

C = ConditionType


def suspended(observed: Observed, now: datetime) -> Verdict | None:
    """spec.suspend: the Ray job is stopped, and at its end the cluster is released. Progress and checkpoints stay.

    Ray gives a program that is asked to end RAY_JOB_STOP_WAIT_TIME_S for its last checkpoint, and ends it then.
    """
    spec = observed.job.spec
    assert spec
    if not spec.suspend and not was_stopped(observed):
        return None
    message = "Suspended: the cluster is released. Set spec.suspend to false to go on."
    claims = {
        C.SUSPENDED: ConditionUpdate("True", Reason.SUSPEND_REQUESTED, message),
        C.RUNNING: ConditionUpdate("False", Reason.SUSPEND_REQUESTED, "The job is suspended."),
    }
    verdict = Verdict(message, Phase.SUSPENDED, claims, requeue_after=IDLE_INTERVAL_S)
    if not remains(observed):
        return release(observed, verdict)
    ray = observed.ray
    if ray and ray.job and ray.job.status in ("PENDING", "RUNNING"):
        message = "Suspending: the training is asked to save and to end."
        claims[C.SUSPENDED] = ConditionUpdate("False", Reason.STOPPING, message)
        claims[C.RUNNING] = ConditionUpdate("True", Reason.STOPPING, message)
        claims[C.CLUSTER_READY] = cluster_condition(observed)
        verdict = Verdict(message, claims=claims, requeue_after=RUNNING_INTERVAL_S)
        return replace(verdict, stop=submission_id(observed), report=ray.progress)
    message = "Suspending: the cluster is being released."
    claims[C.SUSPENDED] = ConditionUpdate("False", Reason.RELEASING, message)
    verdict = release(observed, Verdict(message, claims=claims))
    return replace(verdict, report=last_report(ray.log) if ray and ray.log else ray.progress if ray else None)


def queued(observed: Observed, now: datetime) -> Verdict | None:
    """Kueue has suspended the RayCluster, for the first time or again. A training starts anew once it is admitted."""
    if observed.cluster is None or not observed.cluster.suspend:
        return None
    return replace(waiting(Reason.WAITING_FOR_QUEUE, waiting_for(observed)), requeue_after=QUEUE_INTERVAL_S)


def running(observed: Observed, now: datetime) -> Verdict | None:
    """Ray has the job, or had it and does not answer just now."""
    ray = observed.ray
    if ray is None:
        return None
    cluster = {C.CLUSTER_READY: cluster_condition(observed)}
    if ray.job is None:
        if not submitted(observed):
            return None
        message = f"Ray's job API does not answer: {ray.unreachable}"
        if diagnosis := diagnose(observed):
            message = f"{diagnosis.message}; {message}"
        return Verdict(
            message, claims={**cluster, C.RUNNING: ConditionUpdate("Unknown", Reason.RAY_UNREACHABLE, message)}
        )
    if ray.job.status == "PENDING":
        message = "Ray has the job and is starting it."
        claims = {**cluster, C.RUNNING: ConditionUpdate("False", Reason.SUBMITTED, message)}
        return Verdict(message, Phase.PROVISIONING, claims)
    message = f"The Ray job is running{f', stage {ray.progress.stage}' if ray.progress else ''}."
    if (diagnosis := diagnose(observed)) and cluster[C.CLUSTER_READY].status == "False":
        message += f" {diagnosis.message}"
    claims = {
        **cluster,
        C.RUNNING: ConditionUpdate("True", Reason.STARTED, "The Ray job is running."),
        C.RECONCILING: SETTLED,
    }
    return Verdict(message, Phase.RUNNING, claims, report=ray.progress, requeue_after=RUNNING_INTERVAL_S)


def submit(observed: Observed, now: datetime) -> Verdict | None:
    """All pods are ready and Ray answers: the training can start."""
    job, ray, id = observed.job, observed.ray, submission_id(observed)
    assert job.spec
    assert id
    claim = cluster_condition(observed)
    if ray is None or claim.status == "False":
        return None
    if ray.unreachable:
        message = f"The cluster is ready; waiting for Ray's job API: {ray.unreachable}"
        claims = {C.CLUSTER_READY: claim, C.RUNNING: ConditionUpdate("False", Reason.WAITING_FOR_CLUSTER, message)}
        return Verdict(message, Phase.PROVISIONING, claims)
    message = (
        f"Ray does not take the job: {shorten(observed.refusal)}" if observed.refusal else "The Ray job is submitted."
    )
    reason = Reason.SUBMISSION_REFUSED if observed.refusal else Reason.SUBMITTED
    return Verdict(
        message,
        Phase.PROVISIONING,
        {C.CLUSTER_READY: claim, C.RUNNING: ConditionUpdate("False", reason, message)},
        submit=Submission(id, build_entrypoint(job, job.spec), {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}),
        requeue_after=0.5,
    )


def provisioning(observed: Observed, now: datetime) -> Verdict | None:
    """The cluster is on its way, or something holds it up. A cause does not fail the job: it may pass."""
    assert observed.cluster
    pods = cluster_pods(observed)
    if diagnosis := diagnose(observed):
        verdict = waiting(diagnosis.reason, diagnosis.message, stalled=diagnosis.stalled)
        return replace(verdict, phase=Phase.PROVISIONING if diagnosis.placed else Phase.PENDING)
    if not pods and not observed.cluster.seen_by_kuberay:
        if (now - observed.cluster.created).total_seconds() > KUBERAY_PATIENCE_S:
            message = (
                "KubeRay has not looked at the RayCluster: is its operator running, and does it watch this namespace?"
            )
            return waiting(Reason.KUBERAY_SILENT, message)
        return waiting(Reason.CREATING, "The Ray cluster is being created.")
    claim = cluster_condition(observed)
    return replace(waiting(claim.reason, claim.message), phase=Phase.PROVISIONING if pods else Phase.PENDING)
