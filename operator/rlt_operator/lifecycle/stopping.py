"""The end of a running program on request: by spec.suspend, the cancel annotation or a deadline.

Ray sends SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S. In between the program can write a checkpoint. The
request is recorded in status.currentAttempt.stop before Ray gets it: otherwise a lost status write and a resumption
would make the end of the program look like a stop outside rlt.
"""

from __future__ import annotations

from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import StopRequest
from rlt_core.children.environment import get_stop_timeout
from rlt_operator.conditions import ConditionUpdate, format_time
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

STOPPING_INTERVAL_S = 2.0
"""Requeue interval while the program saves its state and exits."""
STOP_MARGIN_S = 30.0
"""Time after RAY_JOB_STOP_WAIT_TIME_S for Ray to kill the program and report it."""

C = ConditionType


def stop_program(
    observed: Observed, spec: RLTrainingJobSpec, reason: Reason, doing: str, now: datetime
) -> Verdict | None:
    """Stop the program and wait until it has ended; None if no program runs or its time is over.

    `doing` is the first word of the message, such as "Suspending".
    """
    if not is_program_running(observed) or is_stop_overdue(observed, spec, now):
        return None
    ray = observed.ray
    stop = observed.stop_request
    message = f"{doing}: waiting for the training to save its state and exit."
    if stop and (ray is None or ray.unreachable):
        message += f" Ray's job API does not answer: {(ray and ray.unreachable) or 'no answer yet'}"
    conditions = {
        C.RUNNING: ConditionUpdate("True", Reason.STOPPING, message),
        C.CLUSTER_READY: build_cluster_ready(observed, spec),
    }
    return Verdict(
        message,
        conditions=conditions,
        report=ray.progress if ray else None,
        stop=observed.submission_id if stop else None,
        stop_request=StopRequest(reason=reason, time=stop.time if stop else format_time(now)),
        requeue_after=STOPPING_INTERVAL_S if stop else 0,
    )


def is_program_running(observed: Observed) -> bool:
    """Whether the program may be running. A program that Ray has not accepted yet has nothing to save."""
    cluster = observed.owned_cluster
    attempt = observed.attempt
    ray = observed.ray
    if cluster is None or cluster.deleting or cluster.suspend:
        return False
    if ray and ray.job:
        return ray.job.status in ("PENDING", "RUNNING")
    if attempt is None or attempt.accepted_time is None or (ray and not ray.unreachable):
        return False
    heads = [pod.uid for pod in observed.pods if pod.is_head and pod.phase == "Running"]
    return attempt.head_pod_uid is None or attempt.head_pod_uid in heads


def is_stop_overdue(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> bool:
    """Whether the time to stop the program is over.

    A program that Ray still reports gets the time twice: Ray may have received the request late.
    """
    stop = observed.stop_request
    ray = observed.ray
    if stop is None:
        return False
    timeout = get_stop_timeout(spec) * (2 if ray and ray.job else 1) + STOP_MARGIN_S
    return (now - datetime.fromisoformat(stop.time)).total_seconds() >= timeout


def describe_overdue_stop(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> str:
    """A sentence on a program that did not stop in time; empty if it has ended."""
    if not (is_program_running(observed) and is_stop_overdue(observed, spec, now)):
        return ""
    ray = observed.ray
    stop = observed.stop_request
    assert stop
    seconds = round((now - datetime.fromisoformat(stop.time)).total_seconds())
    cause = "the program did not exit" if ray and ray.job else "Ray's job API did not answer"
    return f" Within {seconds} s after the request to stop, {cause}: the last checkpoint may be missing."
