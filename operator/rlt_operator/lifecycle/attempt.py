"""status.currentAttempt: what the operator records of a RayCluster, so that it infers nothing from conditions.

`track_attempt` relates the recorded attempt to the observed RayCluster before a step decides. `record_attempt` adds
what this reconciliation has learned and decided. A step acts only on what is recorded.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import CurrentAttempt
from rlt_operator.conditions import format_time
from rlt_operator.lifecycle.progress_deadline import record_progress
from rlt_operator.lifecycle.verdict import Verdict
from rlt_operator.observation import Observed, RayCluster


def track_attempt(observed: Observed) -> Observed:
    """The observation with a status whose current attempt is that of the observed RayCluster."""
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
        stop = attempt.stop if attempt.stop and attempt.stop.reason != Reason.NO_PROGRESS else None
        attempt = CurrentAttempt(ray_cluster_uid=cluster.uid, stop=stop)
    tracked = status.model_copy(update={"current_attempt": attempt})
    return replace(observed, job=replace(observed.job, status=tracked))


def record_attempt(observed: Observed, verdict: Verdict, now: datetime) -> CurrentAttempt | None:
    """The current attempt after this reconciliation. A new RayCluster is recorded when KubeRay has reconciled it."""
    attempt = observed.job.status.current_attempt
    cluster = observed.cluster
    ray = observed.ray
    time = format_time(now)
    if attempt is None:
        return None
    changes: dict[str, object] = {
        "progress": record_progress(observed, attempt, now),
        "stacks": verdict.stacks or attempt.stacks,
        "stop": verdict.stop_request or attempt.stop,
    }
    accepted = attempt.accepted_time or attempt.preflight_accepted_time or attempt.prepare_step
    if cluster and not accepted:
        head = observed.head
        changes["head_pod_uid"] = head.uid if head else None
        changes["cluster_resumed_time"] = _get_resumed_time(cluster)
    if ray and cluster and not cluster.suspend:
        step = observed.pending_step if observed.ray_step else None
        changes["prepare_step"] = step.name if step else attempt.prepare_step
        changes["preflight_accepted_time"] = attempt.preflight_accepted_time or (time if ray.preflight else None)
        changes["accepted_time"] = attempt.accepted_time or (time if ray.job else None)
    recorded = attempt.model_copy(update=changes)
    is_new = cluster is not None and recorded == CurrentAttempt(ray_cluster_uid=cluster.uid)
    return None if is_new and not observed.is_reconciled else recorded


def _is_readmitted(attempt: CurrentAttempt, cluster: RayCluster) -> bool:
    """Whether Kueue has evicted the RayCluster since the attempt was recorded. It then has or gets other pods."""
    if cluster.suspend:
        return True
    accepted = attempt.accepted_time or attempt.preflight_accepted_time or attempt.prepare_step
    resumed = _get_resumed_time(cluster)
    return accepted is not None and resumed is not None and attempt.cluster_resumed_time != resumed


def _get_resumed_time(cluster: RayCluster) -> str | None:
    return format_time(cluster.resumed) if cluster.resumed else None
