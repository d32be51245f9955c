"""What a policy decides about a job, and the verdicts that several policies share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rlt_api.conditions import ConditionType, Reason
from rlt_api.status import Attempt, NetworkStatus, Phase
from rlt_api.training_config import ProgressReport
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Manifest
from rlt_operator.conditions import ConditionUpdate, ConditionUpdates, condition
from rlt_operator.diagnosis.pods import diagnose
from rlt_operator.observation import Observed, cluster_pods

WAITING_INTERVAL_S = 2.0
"""Between looks at a job whose cluster is on its way or going away."""

C = ConditionType


@dataclass(frozen=True)
class Submission:
    """A Ray job to submit."""

    id: str
    entrypoint: str
    """A line for the shell (Ray starts it with one)."""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a policy decides."""

    message: str
    phase: Phase | None = None
    """None: as before."""
    claims: ConditionUpdates = field(default_factory=dict)
    """Conditions; those that are not named get their default."""
    network: NetworkStatus | None = None
    """What was decided about the network; None: as before."""
    check: tuple[TemplateDryRun, ...] = ()
    apply: tuple[Manifest, ...] = ()
    stop: str | None = None
    delete_cluster: str | None = None
    submit: Submission | None = None
    delete_job: bool = False
    report: ProgressReport | None = None
    attempt: Attempt | None = None
    """The attempt that has failed, to be written down, or what is known of it since."""
    requeue_after: float | None = WAITING_INTERVAL_S


SETTLED = ConditionUpdate("False", Reason.SETTLED)
"""Reconciling, when there is nothing to do."""


def cluster_condition(observed: Observed) -> ConditionUpdate:
    """ClusterReady, by the pods that there are."""
    spec = observed.job.spec
    assert spec
    pods = cluster_pods(observed)
    desired = sum(group.replicas for group in spec.cluster.workers)
    heads = sum(pod.ready and pod.is_head for pod in pods)
    workers = sum(pod.ready and not pod.is_head for pod in pods)
    if heads and workers >= desired:
        return ConditionUpdate("True", Reason.READY, f"The head and {desired} of {desired} workers are ready.")
    if diagnosis := diagnose(observed):
        return ConditionUpdate("False", diagnosis.reason, diagnosis.message)
    head = "The head is ready" if heads else "The head is starting"
    return ConditionUpdate("False", Reason.STARTING, f"{head}, {workers} of {desired} workers are ready.")


def waiting(reason: str, message: str, *, stalled: bool = False) -> Verdict:
    """The cluster is not ready, and the job is pending."""
    claims = {C.CLUSTER_READY: ConditionUpdate("False", reason, message)}
    if stalled:
        claims |= {
            C.STALLED: ConditionUpdate("True", reason, message),
            C.RECONCILING: ConditionUpdate("False", reason, message),
        }
    return Verdict(message, Phase.PENDING, claims)


def failed(reason: Reason, message: str, claims: ConditionUpdates, report: ProgressReport | None) -> Verdict:
    """The job has failed for good."""
    failed = ConditionUpdate("True", reason, message)
    final = {C.FAILED: failed, C.STALLED: failed, C.RUNNING: ConditionUpdate("False", reason, "The job has ended.")}
    return Verdict(message, Phase.FAILED, {**claims, **final}, report=report, requeue_after=0)


def own_cluster(observed: Observed) -> bool:
    """Whether there is a RayCluster, and it is the job's."""
    return observed.cluster is not None and observed.cluster.owner_uid == observed.job.uid


def remains(observed: Observed) -> bool:
    """Whether there is anything of the job's cluster left."""
    return own_cluster(observed) or bool(observed.pods)


def was_stopped(observed: Observed) -> bool:
    """Whether the training was stopped for a suspension that is not over. A resumption in the middle of it waits."""
    suspended = condition(observed.job.status, ConditionType.SUSPENDED)
    return remains(observed) and suspended is not None and suspended.reason in (Reason.STOPPING, Reason.RELEASING)


def release(observed: Observed, verdict: Verdict) -> Verdict:
    """The verdict, and the deletion of the job's cluster if there is one."""
    if not remains(observed):
        released = {
            C.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASED, "The Ray cluster is released."),
            C.RECONCILING: SETTLED,
        }
        return replace(verdict, claims={**verdict.claims, **released})
    message = "The Ray cluster's pods are ending."
    releasing = {
        C.CLUSTER_READY: ConditionUpdate("False", Reason.RELEASING, message),
        C.RECONCILING: ConditionUpdate("True", Reason.RELEASING, message),
    }
    cluster = observed.cluster
    delete = cluster.uid if cluster and own_cluster(observed) and not cluster.deleting else None
    claims = {**verdict.claims, **releasing}
    return replace(verdict, claims=claims, delete_cluster=delete, requeue_after=WAITING_INTERVAL_S)
