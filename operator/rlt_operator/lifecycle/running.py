"""A Ray job that Ray has accepted, and the suspension of the job."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import diagnose, truncate
from rlt_operator.diagnosis.progress import parse_last_report
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.lifecycle.pause import choose_pause, describe_pause
from rlt_operator.lifecycle.shared_verdicts import release_cluster
from rlt_operator.lifecycle.stopping import describe_overdue_stop, stop_program
from rlt_operator.memory.attempt_progress import (
    NOTICE_S,
    count_seconds_to_notice,
    count_seconds_to_progress_deadline,
)
from rlt_operator.observation import Observed
from rlt_operator.verdict import SETTLED, Verdict

RUNNING_INTERVAL_S = 30.0
"""Requeue interval of a running job. A new answer of its head also wakes the job."""
IDLE_INTERVAL_S = 60.0
"""Requeue interval of a suspended job."""
NO_STEP = (
    f"The command has reported no step for {NOTICE_S // 60} minutes. If it prints steps, it may hang: see its log and "
    "`rlt top`. spec.failurePolicy.progressDeadlineSeconds ends such attempts."
)
"""The notice about a command without a step."""

C = ConditionType


def job_is_suspended(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """spec.suspend or a pause: stop the program, then release the cluster. Progress and checkpoints are kept.

    A resumption waits until a suspension whose stop request is recorded has completed.
    """
    stop = observed.stop_request
    if stop and stop.reason != Reason.SUSPEND_REQUESTED:
        return None
    pause = choose_pause(observed, spec, now)
    if not spec.suspend and pause is None and stop is None:
        return None
    doing = f"Pausing by spec.observability.metricRules.{pause.rule}" if pause else "Suspending"
    if waiting := stop_program(observed, spec, Reason.SUSPEND_REQUESTED, doing, now):
        stopping = ConditionUpdate("False", Reason.STOPPING, waiting.message)
        return replace(waiting, conditions={**waiting.conditions, C.SUSPENDED: stopping}, pause=pause)
    message = "Suspended: the cluster is released. Set spec.suspend to false to resume."
    suspended = ConditionUpdate("True", Reason.SUSPEND_REQUESTED, message)
    if pause:
        suspended = ConditionUpdate("True", Reason.PAUSED_BY_RULE, describe_pause(pause, observed.job.name))
    conditions = {
        C.SUSPENDED: suspended,
        C.RUNNING: ConditionUpdate("False", Reason.SUSPEND_REQUESTED, "The job is suspended."),
    }
    if observed.is_released:
        verdict = Verdict(suspended.message, Phase.SUSPENDED, conditions, requeue_after=IDLE_INTERVAL_S)
        return release_cluster(observed, verdict)
    overdue = describe_overdue_stop(observed, spec, now)
    ray = observed.ray
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
        if not observed.is_submitted:
            return None
        message = f"Ray's job API does not answer: {ray.unreachable if ray else 'the head pod does not run'}"
        if diagnosis := diagnose(observed):
            message = f"{diagnosis.message}; {message}"
        unreachable = ConditionUpdate("Unknown", Reason.RAY_UNREACHABLE, message)
        return Verdict(message, conditions={C.CLUSTER_READY: cluster, C.RUNNING: unreachable})
    if ray.job.status == "PENDING" and observed.job.status.active_since is None:  # Ray starts a program once
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
    notice = count_seconds_to_notice(observed, now)
    if notice <= 0 and running.reason == Reason.STARTED:
        running = ConditionUpdate("True", Reason.NO_STEP_REPORTED, f"The Ray job is running. {NO_STEP}")
        message += f" {NO_STEP}"
    conditions = {C.CLUSTER_READY: cluster, C.RUNNING: running, C.RECONCILING: SETTLED}
    after = min(RUNNING_INTERVAL_S, count_seconds_to_progress_deadline(observed, now), notice or math.inf)
    return Verdict(message, Phase.RUNNING, conditions, report=ray.progress, requeue_after=after)
