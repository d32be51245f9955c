"""A Ray job that Ray has accepted, and the suspension of the job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import Phase
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import diagnose, truncate
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_operator.lifecycle.progress_deadline import count_seconds_to_progress_deadline
from rlt_operator.lifecycle.stopping import describe_overdue_stop, get_stop_request, stop_program
from rlt_operator.lifecycle.verdict import (
    RUNNING_INTERVAL_S,
    SETTLED,
    Verdict,
    build_cluster_ready,
    is_released,
    release_cluster,
)
from rlt_operator.observation import Observed, is_submitted

IDLE_INTERVAL_S = 60.0
"""Requeue interval of a suspended job."""

C = ConditionType


def job_is_suspended(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """spec.suspend: stop the program, then release the cluster. Progress and checkpoints are kept.

    A resumption waits until a suspension whose stop request is recorded has completed.
    """
    stop = get_stop_request(observed)
    if stop and stop.reason != Reason.SUSPEND_REQUESTED:
        return None
    if not spec.suspend and stop is None:
        return None
    if waiting := stop_program(observed, spec, Reason.SUSPEND_REQUESTED, "Suspending", now):
        stopping = ConditionUpdate("False", Reason.STOPPING, waiting.message)
        return replace(waiting, conditions={**waiting.conditions, C.SUSPENDED: stopping})
    message = "Suspended: the cluster is released. Set spec.suspend to false to resume."
    conditions = {
        C.SUSPENDED: ConditionUpdate("True", Reason.SUSPEND_REQUESTED, message),
        C.RUNNING: ConditionUpdate("False", Reason.SUSPEND_REQUESTED, "The job is suspended."),
    }
    if is_released(observed):
        return release_cluster(observed, Verdict(message, Phase.SUSPENDED, conditions, requeue_after=IDLE_INTERVAL_S))
    overdue, ray = describe_overdue_stop(observed, spec, now), observed.ray
    message = f"Suspending: the cluster is being released.{overdue}"
    reason = Reason.STOP_TIMEOUT if overdue else Reason.RELEASING
    conditions[C.SUSPENDED] = ConditionUpdate("False", reason, message)
    report = parse_last_report(ray.log) if ray and ray.log else ray.progress if ray else None
    return release_cluster(observed, Verdict(message, conditions=conditions, report=report))


def program_running(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """Ray has the program, or had it and does not answer at present."""
    ray = observed.ray
    cluster = build_cluster_ready(observed, spec)
    if ray is None or ray.job is None:
        if not is_submitted(observed):
            return None
        message = f"Ray's job API does not answer: {ray.unreachable if ray else 'the head pod does not run'}"
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
    running = ConditionUpdate("True", Reason.STARTED, "The Ray job is running.")
    if ray.progress and (error := ray.progress.checkpoint_error):
        running = ConditionUpdate("True", Reason.CHECKPOINT_FAILED, f"The Ray job is running. {truncate(error)}")
        message += f" {truncate(error)}"
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: running, C.RECONCILING: SETTLED}
    after = min(RUNNING_INTERVAL_S, count_seconds_to_progress_deadline(observed, now))
    return Verdict(message, Phase.RUNNING, conditions, report=ray.progress, requeue_after=after)
