"""What a lifecycle step decides, and the verdicts that several steps share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import ConditionType, Reason
from rlt_api.status.job_status import Attempt, FailureFinding, Pause, Phase, PreparedStep, StackDump, StopRequest
from rlt_api.status.network import NetworkStatus
from rlt_core import names
from rlt_core.children.pod_template import GCS_PORT, TemplateDryRun
from rlt_core.job import Job, Manifest
from rlt_operator.conditions import ConditionUpdate, ConditionUpdates
from rlt_operator.diagnosis.pods import HEAD_TIMEOUT_S, diagnose, list_cut_off, list_waiting_for_head
from rlt_operator.observation import Observed, Pod

WAITING_INTERVAL_S = 5.0
"""Requeue interval while the cluster starts or terminates. A change of its objects also wakes the job."""
RUNNING_INTERVAL_S = 30.0
"""Requeue interval of a running job. A new answer of its head also wakes the job."""
STOPPING_INTERVAL_S = 2.0
"""Requeue interval while the program saves its state and exits."""

C = ConditionType


@dataclass(frozen=True)
class Submission:
    """A Ray job to submit."""

    name: str
    """What it runs, for messages."""
    id: str
    entrypoint: str
    """A command line. Ray runs it in a shell."""
    metadata: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, object] = field(default_factory=dict)
    """Ray's runtime_env of the job and its actors."""


@dataclass(frozen=True)
class Verdict:
    """What one step decides about a job. `Plan` documents the fields that have the same name there."""

    message: str
    phase: Phase | None = None
    """None keeps the phase."""
    conditions: ConditionUpdates = field(default_factory=dict)
    """A condition that is not listed gets its default."""
    network: NetworkStatus | None = None
    """The fabric decision. None keeps the one in the status."""
    dry_run: tuple[TemplateDryRun, ...] = ()
    apply: tuple[Manifest, ...] = ()
    stop: str | None = None
    stop_request: StopRequest | None = None
    """The request to stop the program to record. None keeps the recorded one."""
    pause: Pause | None = None
    """The pause to record with the request to stop."""
    stacks: StackDump | None = None
    """The stacks to record. None keeps the recorded ones."""
    prepared: PreparedStep | None = None
    """The step that has succeeded, to record."""
    delete_cluster: str | None = None
    submit: Submission | None = None
    delete_job: bool = False
    report: ProgressReport | None = None
    attempt: Attempt | None = None
    """The failed attempt to record, or what is known about it since."""
    findings: tuple[FailureFinding, ...] | None = None
    """The known failures of the attempt. None keeps the recorded ones."""
    requeue_after: float | None = WAITING_INTERVAL_S

    @property
    def acts(self) -> bool:
        """Whether the verdict changes anything besides the status."""
        return bool(self.apply or self.submit or self.stop or self.delete_cluster or self.delete_job)


SETTLED = ConditionUpdate("False", Reason.SETTLED)
"""Reconciling, when there is nothing to do."""


def build_cluster_ready(observed: Observed, spec: RLTrainingJobSpec) -> ConditionUpdate:
    """ClusterReady, from the pods."""
    pods = observed.cluster_pods
    desired = sum(group.replicas for group in spec.cluster.workers)
    heads = sum(pod.ready and pod.is_head for pod in pods)
    workers = sum(pod.ready and not pod.is_head for pod in pods)
    if heads and workers >= desired:
        return ConditionUpdate("True", Reason.READY, f"The head and {desired} of {desired} workers are ready.")
    if diagnosis := diagnose(observed):
        return ConditionUpdate("False", diagnosis.reason, diagnosis.message)
    head = "The head is ready" if heads else "The head is starting"
    message = f"{head}, {workers} of {desired} workers are ready."
    if heads and (waiting := list_waiting_for_head(pods)):
        message += f" {_name_pods(waiting)} a connection to {names.head_service(observed.job.name)}:{GCS_PORT}."
    return ConditionUpdate("False", Reason.STARTING, message)


def describe_unreachable_head(observed: Observed, now: datetime) -> ConditionUpdate | None:
    """ClusterReady, if workers wait too long for a connection to the head."""
    pods = list_cut_off(observed.cluster_pods, now)
    if not pods:
        return None
    message = (
        f"The head is ready, and {_name_pods(pods)} a connection to {names.head_service(observed.job.name)}:{GCS_PORT} "
        f"for more than {HEAD_TIMEOUT_S:.0f} s: inspect DNS, NetworkPolicies and firewalls between their nodes and "
        "the head."
    )
    return ConditionUpdate("False", Reason.HEAD_UNREACHABLE, message)


def _name_pods(pods: Sequence[Pod]) -> str:
    return f"{len(pods)} of them, such as {pods[0].name}, wait for" if len(pods) > 1 else f"{pods[0].name} waits for"


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


def choose_network(job: Job, verdict: Verdict) -> NetworkStatus | None:
    """The fabric decision for the new status. A suspended job gets a new decision when it resumes."""
    return None if verdict.phase == Phase.SUSPENDED else verdict.network or job.status.network
