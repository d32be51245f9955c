"""A Ray job that Ray has accepted, and the suspension of the job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import Phase
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import diagnose
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_operator.lifecycle.verdict import (
    SETTLED,
    Verdict,
    build_cluster_ready,
    is_released,
    is_suspending,
    release_cluster,
)
from rlt_operator.observation import Observed, get_submission_id, is_submitted

RUNNING_INTERVAL_S = 2.0
"""Requeue interval of a running job. With it, progress in the status is at most 5 s old."""
IDLE_INTERVAL_S = 60.0
"""Requeue interval of a suspended job."""

C = ConditionType


def job_is_suspended(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """spec.suspend: stop the Ray job, then release the cluster. Progress and checkpoints are kept.

    Ray sends SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S. In between the program can write a checkpoint.
    """
    if not spec.suspend and not is_suspending(observed):
        return None
    message = "Suspended: the cluster is released. Set spec.suspend to false to resume."
    conditions = {
        C.SUSPENDED: ConditionUpdate("True", Reason.SUSPEND_REQUESTED, message),
        C.RUNNING: ConditionUpdate("False", Reason.SUSPEND_REQUESTED, "The job is suspended."),
    }
    if is_released(observed):
        return release_cluster(observed, Verdict(message, Phase.SUSPENDED, conditions, requeue_after=IDLE_INTERVAL_S))
    ray = observed.ray
    if ray and ray.job and ray.job.status in ("PENDING", "RUNNING"):
        message = "Suspending: waiting for the training to save its state and exit."
        conditions[C.SUSPENDED] = ConditionUpdate("False", Reason.STOPPING, message)
        conditions[C.RUNNING] = ConditionUpdate("True", Reason.STOPPING, message)
        conditions[C.CLUSTER_READY] = build_cluster_ready(observed, spec)
        verdict = Verdict(message, conditions=conditions, requeue_after=RUNNING_INTERVAL_S)
        return replace(verdict, stop=get_submission_id(observed), report=ray.progress)
    message = "Suspending: the cluster is being released."
    conditions[C.SUSPENDED] = ConditionUpdate("False", Reason.RELEASING, message)
    report = parse_last_report(ray.log) if ray and ray.log else ray.progress if ray else None
    return release_cluster(observed, Verdict(message, conditions=conditions, report=report))


def program_running(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """Ray has the program, or had it and does not answer at present."""
    ray = observed.ray
    if ray is None:
        return None
    cluster = build_cluster_ready(observed, spec)
    if ray.job is None:
        if not is_submitted(observed):
            return None
        message = f"Ray's job API does not answer: {ray.unreachable}"
        if diagnosis := diagnose(observed):
            message = f"{diagnosis.message}; {message}"
        unreachable = ConditionUpdate("Unknown", Reason.RAY_UNREACHABLE, message)
        return Verdict(message, conditions={C.CLUSTER_READY: cluster, C.RUNNING: unreachable})
    if ray.job.status == "PENDING":
        message = "Ray has accepted the job and is starting it."
        submitted = ConditionUpdate("False", Reason.SUBMITTED, message)
        return Verdict(message, Phase.PROVISIONING, {C.CLUSTER_READY: cluster, C.RUNNING: submitted})
    message = f"The Ray job is running{f', stage {ray.progress.stage}' if ray.progress else ''}."
    if (diagnosis := diagnose(observed)) and cluster.status == "False":
        message += f" {diagnosis.message}"
    conditions = {
        C.CLUSTER_READY: cluster,
        C.RUNNING: ConditionUpdate("True", Reason.STARTED, "The Ray job is running."),
        C.RECONCILING: SETTLED,
    }
    return Verdict(message, Phase.RUNNING, conditions, report=ray.progress, requeue_after=RUNNING_INTERVAL_S)
