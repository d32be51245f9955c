"""Kueue's part in a job's life: it suspends the RayCluster until there is a place in the queue, and may take it back.

The operator never writes the RayCluster's spec.suspend; it only says what has become of it.
"""

from __future__ import annotations

from rlt_api.conditions import ConditionType, Reason
from rlt_operator.conditions import ConditionUpdate, condition, is_true
from rlt_operator.diagnosis.pods import shorten
from rlt_operator.observation import Observed


def admitted_condition(observed: Observed) -> ConditionUpdate | None:
    """Admitted, as the RayCluster shows it; None for a job that names no queue."""
    job, cluster = observed.job, observed.cluster
    if job.queue is None:
        return None
    final = any(is_true(job.status, type) for type in (ConditionType.SUCCEEDED, ConditionType.FAILED))
    if final and (before := condition(job.status, ConditionType.ADMITTED)):
        return ConditionUpdate(before.status, before.reason, before.message)
    if cluster is None or cluster.owner_uid != job.uid or cluster.deleting:
        return ConditionUpdate(
            "False", Reason.WAITING_FOR_QUEUE, f"Queue {job.queue} is asked once there is a RayCluster."
        )
    if cluster.suspend is None:
        message = f"Kueue has not looked at the RayCluster, which starts without queue {job.queue}: is Kueue there?"
        return ConditionUpdate("Unknown", Reason.QUEUE_SILENT, message)
    if cluster.suspend:
        return ConditionUpdate("False", Reason.WAITING_FOR_QUEUE, waiting_for(observed))
    return ConditionUpdate("True", Reason.QUOTA_RESERVED, f"Queue {job.queue} has given the job its place.")


def waiting_for(observed: Observed) -> str:
    """What a suspended RayCluster waits for, in Kueue's words where it has said any."""
    if observed.job.queue is None:
        return "Somebody has suspended the RayCluster: the job goes on once its spec.suspend is false."
    waiting = f"Waiting for a place in queue {observed.job.queue}"
    return f"{waiting}: {shorten(observed.queue_says)}" if observed.queue_says else f"{waiting}."
