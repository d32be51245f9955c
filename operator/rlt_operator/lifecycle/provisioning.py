"""From an admitted RayCluster to a submitted Ray job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Phase
from rlt_core.entrypoint import build_entrypoint, build_runtime_env
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import diagnose
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready, describe_unreachable_head
from rlt_operator.lifecycle.shared_verdicts import wait_for_cluster
from rlt_operator.lifecycle.submission import submit
from rlt_operator.observation import Observed
from rlt_operator.verdict import WAITING_INTERVAL_S, Submission, Verdict

KUBERAY_TIMEOUT_S = 15.0
"""After this time without a status from KubeRay, the RayCluster is reported as not reconciled."""
BUSY_KUBERAY_TIMEOUT_S = 180.0
"""The time while KubeRay reconciles RayClusters of other namespaces: it may be busy, or not watch this one."""
MAX_INTERVAL_S = 30.0
"""Maximum requeue interval of a RayCluster that is not ready."""

C = ConditionType


def program_not_submitted(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The cluster is ready and Ray does not have the program: submit it."""
    job = observed.job
    ray = observed.ray
    job_id = observed.submission_id
    cluster = build_cluster_ready(observed, spec)
    if ray is None or job_id is None or cluster.status == "False":
        return None
    if ray.unreachable:
        message = f"The cluster is ready; waiting for Ray's job API: {ray.unreachable}"
        waiting = ConditionUpdate("False", Reason.WAITING_FOR_CLUSTER, message)
        return Verdict(message, Phase.PROVISIONING, {C.CLUSTER_READY: cluster, C.RUNNING: waiting})
    metadata = {"rlt.dev/job": job.name, "rlt.dev/uid": job.uid}
    submission = Submission("the job", job_id, build_entrypoint(job, spec), metadata, build_runtime_env(spec.framework))
    submitted = ConditionUpdate("False", Reason.SUBMITTED, "The cluster is ready; the Ray job is being submitted.")
    return submit(observed, submission, cluster, submitted)


def cluster_not_ready(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict | None:
    """The cluster starts, or something blocks it. A diagnosed cause does not fail the job, because it may disappear."""
    cluster = observed.cluster
    if cluster is None:
        return None
    age = (now - cluster.created).total_seconds()
    if diagnosis := diagnose(observed):
        verdict = wait_for_cluster(diagnosis.reason, diagnosis.message, stalled=diagnosis.stalled)
        verdict = replace(verdict, phase=Phase.PROVISIONING if diagnosis.scheduled else Phase.PENDING)
        return replace(verdict, requeue_after=_limit_interval(age / 4))
    if not observed.is_reconciled:
        return _wait_for_kuberay(observed, age)
    return replace(_count_pods(observed, spec, now), requeue_after=_limit_interval(age / 4))


def _limit_interval(seconds: float) -> float:
    """A requeue interval of a RayCluster that is not ready. A change of its objects also wakes the job.

    In a sweep, KubeRay needs minutes for the last RayClusters. Meanwhile their jobs must not keep the operator busy.
    """
    return min(MAX_INTERVAL_S, max(WAITING_INTERVAL_S, seconds))


def _wait_for_kuberay(observed: Observed, age: float) -> Verdict:
    """The wait for the first status. `age`: seconds since the creation of the RayCluster."""
    timeout = BUSY_KUBERAY_TIMEOUT_S if observed.kuberay_active else KUBERAY_TIMEOUT_S
    if observed.kuberay_active_here or age <= timeout:
        verdict = wait_for_cluster(Reason.CREATING, "The Ray cluster is being created.")
        return replace(verdict, requeue_after=_limit_interval(timeout - age if age <= timeout else MAX_INTERVAL_S))
    message = (
        "KubeRay has not reconciled the RayCluster. Check that its operator is running and watches this namespace."
    )
    return replace(wait_for_cluster(Reason.KUBERAY_SILENT, message), requeue_after=_limit_interval(age / 4))


def _count_pods(observed: Observed, spec: RLTrainingJobSpec, now: datetime) -> Verdict:
    """The wait for the pods of the cluster."""
    unreachable = describe_unreachable_head(observed, now)
    ready = unreachable or build_cluster_ready(observed, spec)
    verdict = wait_for_cluster(ready.reason, ready.message)
    return replace(
        verdict, phase=Phase.PROVISIONING if observed.cluster_pods else Phase.PENDING, is_passing=unreachable is None
    )
