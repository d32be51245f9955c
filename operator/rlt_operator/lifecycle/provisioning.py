"""The checks on the job's own nodes, between a Ray cluster that is ready and the training on it."""

from __future__ import annotations

from datetime import datetime

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Phase
from rlt_core.entrypoint import build_preflight_entrypoint
from rlt_operator.conditions import ConditionUpdate, is_true
from rlt_operator.diagnosis.pods import shorten
from rlt_operator.lifecycle.preflight_results import preflight_condition
from rlt_operator.lifecycle.verdict import WAITING_INTERVAL_S, Submission, Verdict, cluster_condition, failed
from rlt_operator.observation import Observed, preflight_id, preflighted

C = ConditionType


def preflight(observed: Observed, now: datetime) -> Verdict | None:
    """spec.preflight: what a Ray job finds is written down before the training is submitted."""
    job, ray = observed.job, observed.ray
    assert job.spec
    if not job.spec.preflight.enabled or ray is None or ray.unreachable:
        return None
    cluster = cluster_condition(observed)
    if ray.preflight is None:
        return _submit(observed, cluster) if cluster.status == "True" else None
    found = preflight_condition(observed)
    assert found
    if found.status == "False":
        ending = {C.CLUSTER_READY: cluster, C.RECONCILING: ConditionUpdate("True", Reason.RELEASING)}
        stopped = ray.preflight.job.status == "STOPPED"
        return failed(Reason.STOPPED if stopped else Reason.PREFLIGHT_FAILED, found.message, ending, None)
    if found.status == "True" and is_true(job.status, C.PREFLIGHT_PASSED) and preflighted(observed):
        return None
    claims = {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", Reason.CHECKING, found.message)}
    requeue_after = 0.0 if found.status == "True" else WAITING_INTERVAL_S
    return Verdict(found.message, Phase.PROVISIONING, claims, requeue_after=requeue_after)


def _submit(observed: Observed, cluster: ConditionUpdate) -> Verdict:
    job, id = observed.job, preflight_id(observed)
    assert id
    reason, message = Reason.CHECKING, "The cluster is ready; the checks on its nodes are submitted."
    if observed.refusal:
        reason, message = Reason.SUBMISSION_REFUSED, f"Ray does not take the checks: {shorten(observed.refusal)}"
    return Verdict(
        message,
        Phase.PROVISIONING,
        {C.CLUSTER_READY: cluster, C.RUNNING: ConditionUpdate("False", reason, message)},
        submit=Submission(id, build_preflight_entrypoint(), {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}),
        requeue_after=0.5,
    )
