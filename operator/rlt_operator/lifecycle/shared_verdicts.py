"""The verdicts that several steps share."""

from __future__ import annotations

from dataclasses import replace

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import ConditionUpdate, ConditionUpdates
from rlt_operator.observation import Observed
from rlt_operator.verdict import SETTLED, WAITING_INTERVAL_S, Verdict

C = ConditionType


def wait_for_cluster(reason: str, message: str, *, stalled: bool = False) -> Verdict:
    """The cluster is not ready and the job is pending."""
    conditions = {C.CLUSTER_READY: ConditionUpdate("False", reason, message)}
    if stalled:
        conditions |= {
            C.STALLED: ConditionUpdate("True", reason, message),
            C.RECONCILING: ConditionUpdate("False", reason, message),
        }
    return Verdict(message, Phase.PENDING, conditions)


def fail_job(reason: Reason, message: str, conditions: ConditionUpdates, report: ProgressReport | None) -> Verdict:
    """The job has failed."""
    failed = ConditionUpdate("True", reason, message)
    final = {C.FAILED: failed, C.STALLED: failed, C.RUNNING: ConditionUpdate("False", reason, "The job has ended.")}
    return Verdict(message, Phase.FAILED, {**conditions, **final}, report=report, requeue_after=0)


def release_cluster(observed: Observed, verdict: Verdict) -> Verdict:
    """Add the deletion of the job's cluster to the verdict."""
    if observed.is_released:
        released = {
            C.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASED, "The Ray cluster is released."),
            C.RECONCILING: SETTLED,
        }
        return replace(verdict, conditions={**verdict.conditions, **released})
    message = "The pods of the Ray cluster are terminating."
    releasing = {
        C.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASING, message),
        C.RECONCILING: ConditionUpdate("True", Reason.RELEASING, message),
    }
    cluster = observed.owned_cluster
    delete = cluster.uid if cluster and not cluster.deleting else None
    conditions = {**verdict.conditions, **releasing}
    return replace(verdict, conditions=conditions, delete_cluster=delete, requeue_after=WAITING_INTERVAL_S)
