"""status.currentAttempt, status.attempts and their counters: what the operator records of each execution on a
RayCluster, so that it infers nothing from conditions.

`track_attempt` relates the recorded attempt to the observed RayCluster before a step decides. `record_attempt` adds
what this reconciliation has learned and decided. A step acts only on what is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Attempt, CurrentAttempt, Phase
from rlt_core.job import has_ended, identify
from rlt_operator.conditions import format_time
from rlt_operator.memory.attempt_progress import record_progress
from rlt_operator.observation import Container, Observed, Pod, RayCluster
from rlt_operator.verdict import Verdict

MAX_ATTEMPTS = 32
"""Maximum number of attempts in the status."""


def track_attempt(observed: Observed) -> Observed:
    """The observation with a status whose current attempt belongs to the observed RayCluster."""
    status = observed.job.status
    cluster = observed.owned_cluster
    attempt = observed.attempt
    if cluster is None:
        recorded = status.current_attempt
        terminating = recorded and any(pod.cluster_uid == recorded.ray_cluster_uid for pod in observed.job_pods)
        attempt = recorded if terminating else None
    elif attempt is None:
        attempt = CurrentAttempt(ray_cluster_uid=cluster.uid)
    if cluster and attempt and _is_readmitted(attempt, cluster):
        stop = attempt.stop
        if stop and stop.reason in (Reason.NO_PROGRESS, Reason.DISRUPTED):  # it concerned the earlier pods
            stop = None
        attempt = CurrentAttempt(ray_cluster_uid=cluster.uid, execution=attempt.execution, stop=stop)
    tracked = status.model_copy(update={"current_attempt": attempt})
    pods = _forget_earlier_ends(observed.pods, attempt, status.attempts)
    return replace(observed, job=replace(observed.job, status=tracked), pods=pods)


def record_attempt(observed: Observed, verdict: Verdict, now: datetime) -> CurrentAttempt | None:
    """The current attempt after this reconciliation. A new RayCluster is recorded when KubeRay has reconciled it."""
    attempt = observed.job.status.current_attempt
    cluster = observed.cluster
    ray = observed.ray
    time = format_time(now)
    if attempt is None:
        return None
    if verdict.execution is not None:
        kept = ("ray_cluster_uid", "cluster_resumed_time", "head_pod_uid")
        return CurrentAttempt(execution=verdict.execution, **{name: getattr(attempt, name) for name in kept})
    changes: dict[str, object] = {
        "progress": record_progress(observed, attempt, now),
        "stacks": verdict.stacks or attempt.stacks,
        "stop": verdict.stop_request or attempt.stop,
    }
    is_fixed = _has_accepted(attempt) or attempt.execution > 1
    if cluster and not (is_fixed and attempt.head_pod_uid):  # the head may be observed after its Ray job
        head = observed.head
        changes["head_pod_uid"] = head.uid if head else None
        changes["cluster_resumed_time"] = cluster.resumed_time
    if ray and cluster and not cluster.suspend:
        step = observed.pending_step if observed.ray_step else None
        changes["prepare_step"] = step.name if step else attempt.prepare_step
        changes["preflight_accepted_time"] = attempt.preflight_accepted_time or (time if ray.preflight else None)
        changes["accepted_time"] = attempt.accepted_time or (time if ray.job else None)
    recorded = attempt.model_copy(update=changes)
    is_new = cluster is not None and recorded == CurrentAttempt(ray_cluster_uid=cluster.uid)
    return None if is_new and not observed.is_reconciled else recorded


def list_attempts(observed: Observed, verdict: Verdict, now: datetime) -> list[Attempt]:
    """The attempts that have ended early."""
    attempts = observed.job.status.attempts
    return add_attempt(attempts, verdict.attempt) if verdict.attempt else attempts


def add_attempt(attempts: Sequence[Attempt], attempt: Attempt) -> list[Attempt]:
    """Add or replace the attempt. Beyond MAX_ATTEMPTS, drop the oldest attempt without a node at fault first."""
    kept = [each for each in attempts if identify(each) != identify(attempt)]
    if len(kept) == MAX_ATTEMPTS:
        kept.remove(next((each for each in kept if each.node_at_fault is None), kept[0]))
    return [*kept, attempt]


def count_restarts(observed: Observed, verdict: Verdict, now: datetime) -> int:
    """How many attempts followed a failure."""
    status = observed.job.status
    restarted = _find_restarted(status.attempts, verdict)
    return (status.restarts or 0) + (restarted is not None and restarted.disruption is None)


def count_disruptions(observed: Observed, verdict: Verdict, now: datetime) -> int | None:
    """How many attempts followed a disruption; None instead of 0."""
    status = observed.job.status
    restarted = _find_restarted(status.attempts, verdict)
    return (status.disruptions or 0) + (restarted is not None and restarted.disruption is not None) or None


def _find_restarted(attempts: Sequence[Attempt], verdict: Verdict) -> Attempt | None:
    """The attempt that this verdict ends, if another attempt follows."""
    attempt = verdict.attempt
    if attempt is None or verdict.phase == Phase.FAILED:
        return None
    return None if has_ended(attempt, attempts) else attempt


def _forget_earlier_ends(
    pods: tuple[Pod, ...], attempt: CurrentAttempt | None, ended: Sequence[Attempt]
) -> tuple[Pod, ...]:
    """The pods without the ends of containers that an earlier execution on the same RayCluster explains."""
    if attempt is None or not ended or ended[-1].ray_cluster_uid != attempt.ray_cluster_uid:
        return pods
    if has_ended(attempt, ended):
        return pods
    until = datetime.fromisoformat(ended[-1].completion_time)
    return tuple(replace(pod, containers=tuple(_forget_end(each, until) for each in pod.containers)) for pod in pods)


def _forget_end(container: Container, until: datetime) -> Container:
    finished = container.termination.finished if container.termination else None
    return replace(container, termination=None) if finished and finished <= until else container


def _is_readmitted(attempt: CurrentAttempt, cluster: RayCluster) -> bool:
    """Whether Kueue has evicted the RayCluster since the attempt was recorded. It then has or gets other pods."""
    if cluster.suspend:
        return True
    resumed = cluster.resumed_time
    return _has_accepted(attempt) and resumed is not None and attempt.cluster_resumed_time != resumed


def _has_accepted(attempt: CurrentAttempt) -> bool:
    return bool(attempt.accepted_time or attempt.preflight_accepted_time or attempt.prepare_step)
