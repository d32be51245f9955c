"""What one reconciliation observes of a job, as frozen values. rlt_operator.manifests parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.framework import PrepareStep
from rlt_api.blocks.resources import Toleration
from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import CurrentAttempt, StopRequest
from rlt_core import names
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.earlier_job import Missing
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job
from rlt_core.kuberay import KubeRay
from rlt_operator.conditions import format_time

MIN_PROGRESS_INTERVAL_S = 2.5
"""Interval between status writes of progress with few running jobs."""
MAX_PROGRESS_INTERVAL_S = 30.0
"""The interval with many running jobs."""
PROGRESS_INTERVAL_PER_JOB_S = 0.05
"""Seconds of the interval for each running job: 2.5 s up to 50 jobs, 30 s from 600 jobs on."""


@dataclass(frozen=True)
class KubeRayCondition:
    """A condition of the RayCluster that is True."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class GroupSize:
    """The number of pods in a worker group of the RayCluster."""

    name: str
    replicas: int
    deleting: tuple[str, ...] = ()
    """The pods that KubeRay is to delete (scaleStrategy.workersToDelete)."""


@dataclass(frozen=True)
class RayCluster:
    """The RayCluster that has the job's name."""

    uid: str
    owner_kind: str | None
    """Kind of the controller in its owner references."""
    owner_uid: str | None
    """Uid of that controller."""
    created: datetime
    deleting: bool
    has_status: bool
    """Whether KubeRay has written a status."""
    conditions: tuple[KubeRayCondition, ...] = ()
    suspend: bool | None = None
    """Its spec.suspend, which Kueue writes: true until the queue admits the cluster. None if it is not set."""
    resumed: datetime | None = None
    """When its last suspension ended."""
    programs: str | None = None
    """Name of the ConfigMap with the programs that its pods mount."""
    head_pod: str | None = None
    """Name of the head pod in KubeRay's status. None before KubeRay has written it."""
    devices: tuple[tuple[str, int], ...] = ()
    """Extended resource and number of them in all workers."""
    groups: tuple[GroupSize, ...] = ()
    """Its worker groups."""
    elastic: bool = False
    """Whether Kueue admits another number of pods: it has added its scheduling gate to their templates."""

    @property
    def removed_by_scaling(self) -> frozenset[str]:
        """The pods that the operator removes to have fewer of them: their end is not a disruption."""
        return frozenset(name for group in self.groups for name in group.deleting)

    @property
    def resumed_time(self) -> str | None:
        """`resumed`, as the status records it."""
        return format_time(self.resumed) if self.resumed else None


@dataclass(frozen=True)
class Termination:
    """How a container ended."""

    reason: str
    exit_code: int
    message: str
    finished: datetime | None = None
    """When it ended, by the clock of its node."""


@dataclass(frozen=True)
class Container:
    """A container or init container of a pod."""

    name: str
    waiting_reason: str | None = None
    waiting_message: str | None = None
    termination: Termination | None = None
    """How it ended, or how it ended before its last restart."""
    restarts: int = 0
    running: bool = False
    """Whether it runs, perhaps after a restart."""
    started: datetime | None = None
    """When it started, if it runs."""
    is_init: bool = False
    """Whether it is an init container, which ends before the others start. KubeRay adds one to worker pods."""


@dataclass(frozen=True)
class Pod:
    """A pod with the job's label."""

    name: str
    uid: str
    cluster_uid: str | None
    """Uid of the RayCluster that owns it. None if its controller is not a RayCluster."""
    is_head: bool
    deleting: bool
    phase: str
    ready: bool
    unschedulable: str | None = None
    """The scheduler's message if it found no node."""
    message: str | None = None
    """The kubelet's message on the whole pod, for example after an eviction."""
    containers: tuple[Container, ...] = ()
    node: str | None = None
    """The node that it is bound to."""
    ip: str | None = None
    reason: str | None = None
    """The kubelet's reason for `message`, one word."""
    disruption: str | None = None
    """Why Kubernetes ends the pod: the reason of its condition DisruptionTarget."""
    cluster_name: str | None = None
    """Name of the RayCluster that owns it."""
    ray_token: str | None = None
    """Name of the Secret with the token of its Ray cluster."""
    images: tuple[str, ...] = ()
    """Digests of its containers' images, without init containers. Empty before they are pulled."""
    ready_since: datetime | None = None
    """When it became ready, if it is."""
    tolerations: tuple[Toleration, ...] = ()
    created: datetime | None = None
    """When it was created."""
    group: str | None = None
    """Name of its group in the RayCluster."""
    scheduled: datetime | None = None
    """When it was bound to its node."""


def is_in(group: WorkerGroup | None, pod: Pod) -> bool:
    """Whether the pod is one of the group."""
    return group is not None and pod.group == group.name


@dataclass(frozen=True)
class WarningEvent:
    """An event of type Warning on the RayCluster or one of its pods."""

    object_uid: str
    """Uid of the object that it refers to."""
    reason: str
    message: str


RayJobStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]


@dataclass(frozen=True)
class RayJob:
    """A Ray job, as Ray reports it."""

    status: RayJobStatus
    message: str = ""
    start_ms: int | None = None
    end_ms: int | None = None
    node_id: str | None = None
    """Id of the Ray node that runs the program."""


@dataclass(frozen=True)
class RayStep:
    """The Ray job for a step of spec.framework.prepare."""

    id: str
    job: RayJob
    log: str | None = None
    """Its output, when it has ended."""
    progress: str | None = None
    """The progress of a download while it runs, such as 12.3 of 56.9 GiB (21%)."""


@dataclass(frozen=True)
class RayPreflight:
    """The Ray job of the preflight checks."""

    job: RayJob
    log: str | None = None
    """Its output, when it has ended."""


@dataclass(frozen=True)
class RayStacks:
    """The Ray job that writes the stacks of all processes."""

    job: RayJob
    log: str | None = None
    """Its output, when it has ended."""


@dataclass(frozen=True)
class Ray:
    """Responses of the head's HTTP servers."""

    unreachable: str | None = None
    """Why Ray's job API did not answer; None if it did."""
    job: RayJob | None = None
    """None if Ray does not have the job, or did not answer."""
    log: str | None = None
    """The program's output, when it has ended."""
    ray_logs: tuple[str, ...] = ()
    """The ends of Ray's own logs on the head, when the program has failed."""
    record: str | None = None
    """The record of the run in base64, as the head's program wrote it when it ended. Not validated."""
    progress: ProgressReport | None = None
    """The trainer's report."""
    step: RayStep | None = None
    """The first step that is not in status.prepared, if Ray has it. Not requested when Ray has the training."""
    preflight: RayPreflight | None = None
    """The preflight checks, if Ray has them. Not requested when Ray has the training."""
    stacks: RayStacks | None = None
    """The Ray job that writes the stacks, if Ray has it. Requested once status.currentAttempt.stacks is recorded."""

    @property
    def latest(self) -> RayJob | None:
        """The program, or the Ray job before it."""
        before = self.preflight or self.step
        return self.job or (before.job if before else None)


@dataclass(frozen=True)
class Rejection:
    """Why an action of a plan failed."""

    message: str
    """The message of the API server or of Ray."""
    reason: Reason = Reason.REQUEST_FAILED
    stalled: bool = True
    """Whether the same request would be rejected again: a person has to act."""
    retry_at: datetime | None = None
    """When the operator retries."""


@dataclass(frozen=True)
class Config:
    """The ConfigMap of the job."""

    digests: Mapping[str, str]
    """Key -> digest of the data."""
    is_unchanged: bool = True
    """Whether the data is from an operator, possibly of another version: its hash is the annotated one."""


@dataclass(frozen=True)
class Programs:
    """A ConfigMap with the programs for pods."""

    uid: str
    is_intact: bool
    """Whether it has the content that its name stands for."""


@dataclass(frozen=True)
class SandboxProblem:
    """Why no sandbox pod is free."""

    code: str
    """Code of the entry in the knowledge base."""
    evidence: str
    """Message of the kubelet, of the scheduler or of the Job controller."""
    pod: str | None = None
    """Name of the pod that has the message."""


@dataclass(frozen=True)
class SandboxPool:
    """The sandbox pods of a head pod, as they were read last."""

    name: str | None
    """Name of their Job (batch/v1), or the beginning of their Sandboxes' names. None without a head pod."""
    ready: int = 0
    """Number of pods that can be claimed."""
    claimed: int = 0
    """Number of pods that conversations use."""
    problem: SandboxProblem | None = None
    sandboxes: int = 0
    """Number of their Sandboxes (agents.x-k8s.io). 0 if the pods belong to a Job."""


@dataclass(frozen=True)
class NamespaceUse:
    """The accelerators of a namespace, and how many the job's runtime permits."""

    runtime: str
    """Name of the RLRuntime."""
    maximum: int
    used: int
    """Accelerators of the other RayClusters."""
    needed: int
    """Accelerators of this job."""

    @property
    def fits(self) -> bool:
        """Whether the job's RayCluster may be created."""
        return self.needed == 0 or self.used + self.needed <= self.maximum


@dataclass(frozen=True)
class Observed:
    """Everything observed, in one value. What was not read has its default."""

    job: Job
    missing_checkpoint: Missing | None = None
    """Why the job cannot resume from spec.checkpoint.resumeFromJob, until it is accepted."""
    programs_missing: bool = False
    """Whether the namespace lacks the ConfigMap with this version's programs for pods, or it has another content."""
    kuberay_installed: bool = True
    kuberay: KubeRay | None = None
    """The fields of its RayCluster CRD. Read while no RayCluster exists."""
    agent_sandbox_installed: bool = True
    """Whether the CRD of agent-sandbox exists. Read while a job that needs it has no RayCluster."""
    kuberay_active: bool = False
    """Whether KubeRay has changed the status of any job's RayCluster lately."""
    kuberay_active_here: bool = False
    """Whether it has in the namespace of the job."""
    nodes: tuple[Node, ...] = ()
    """The nodes of the Kubernetes cluster. Set while the fabric is not decided, and after a failure."""
    pod_nodes: tuple[Node, ...] = ()
    """The nodes of the RayCluster's pods. A change of them alone does not wake the job."""
    config: Config | None = None
    cluster: RayCluster | None = None
    queue_message: str | None = None
    """Why Kueue does not admit the RayCluster, or the pods that were added to it."""
    pods: tuple[Pod, ...] = ()
    removed_pods: tuple[Pod, ...] = ()
    """Pods of the RayCluster that no longer exist, in their last state."""
    warnings: tuple[WarningEvent, ...] = ()
    sandboxes: SandboxPool | None = None
    """The sandbox pods, while the RayCluster of a job with rollout.multiTurn.sandbox exists."""
    ray: Ray | None = None
    """The latest answer of the current head; None before the first one, and without a head that runs."""
    namespace_use: NamespaceUse | None = None
    """Accelerators of the namespace, before the RayCluster is created with a runtime that limits them."""
    access: NetworkAccess | None = None
    """Who reaches the pods of jobs, for their NetworkPolicies; None if the jobs get none."""
    progress_interval: float = MIN_PROGRESS_INTERVAL_S
    """Minimum number of seconds between status writes that change only the progress."""
    rejection: Rejection | None = None
    """Why the API server or Ray rejected the first plan of this reconciliation."""

    @cached_property
    def owned_cluster(self) -> RayCluster | None:
        """The RayCluster, if this job owns it."""
        return self.cluster if self.cluster and self.cluster.owner_uid == self.job.uid else None

    @cached_property
    def cluster_pods(self) -> tuple[Pod, ...]:
        """The pods of the current RayCluster that are not terminating, its head first."""
        if self.cluster is None:
            return ()
        pods = [pod for pod in self.pods if pod.cluster_uid == self.cluster.uid and not pod.deleting]
        return tuple(sorted(pods, key=lambda pod: (not pod.is_head, pod.name)))

    @cached_property
    def job_pods(self) -> tuple[Pod, ...]:
        """The pods of this job's RayClusters, with the pods of a deleted RayCluster.

        Other pods may have the job's label too. A RayCluster has the job's name, which no other RayCluster of the
        namespace has at the same time, and the garbage collector deletes pods whose owner never existed.
        """
        foreign = self.cluster.uid if self.cluster and self.owned_cluster is None else None
        name = names.ray_cluster(self.job.name)
        return tuple(pod for pod in self.pods if pod.cluster_name == name and pod.cluster_uid != foreign)

    @cached_property
    def head(self) -> Pod | None:
        """The head pod of the current RayCluster, unless it is terminating."""
        return next((pod for pod in self.cluster_pods if pod.is_head), None)

    @property
    def is_reconciled(self) -> bool:
        """Whether KubeRay has reconciled the RayCluster: it has a status or pods."""
        return self.cluster is not None and (self.cluster.has_status or bool(self.cluster_pods))

    @property
    def is_released(self) -> bool:
        """Whether neither a RayCluster nor a pod of the job exists."""
        return self.owned_cluster is None and not self.job_pods

    @cached_property
    def submission_id(self) -> str | None:
        """Id of the Ray job for the current execution on the RayCluster."""
        if self.cluster is None:
            return None
        execution = self.attempt.execution if self.attempt else 1
        return names.submission_id(self.job.name, ray_cluster_uid=self.cluster.uid, execution=execution)

    @property
    def preflight_id(self) -> str | None:
        """Id of the Ray job that checks the nodes of the current RayCluster."""
        return names.preflight_id(self.submission_id) if self.submission_id else None

    @property
    def stacks_id(self) -> str | None:
        """Id of the Ray job that writes the stacks of the current RayCluster."""
        return names.stacks_id(self.submission_id) if self.submission_id else None

    @property
    def step_id(self) -> str | None:
        """Id of the Ray job for `pending_step` on the current RayCluster; None if every step has succeeded."""
        step = self.pending_step
        return names.step_id(self.submission_id, step.name) if self.submission_id and step else None

    @cached_property
    def pending_step(self) -> PrepareStep | None:
        """The first step of spec.framework.prepare that has not succeeded. A job of checks alone runs no step.

        The files of a job without a PVC end with the head pod that wrote them.
        """
        spec = self.job.spec
        if spec is None or spec.preflight.only:
            return None
        head_uid = self.head.uid if self.head else None
        kept = spec.storage.outlives_pods
        done = {step.name for step in self.job.status.prepared if kept or step.head_pod_uid == head_uid}
        return next((step for step in spec.framework.prepare if step.name not in done), None)

    @property
    def ray_step(self) -> RayStep | None:
        """The Ray job of `pending_step`, if Ray has it."""
        step = self.ray.step if self.ray else None
        return step if step and step.id == self.step_id else None

    @property
    def preflight(self) -> RayPreflight | None:
        """The preflight checks that Ray reports; None while Kueue evicts the cluster."""
        evicted = self.cluster is not None and self.cluster.suspend
        return self.ray.preflight if self.ray and not evicted else None

    @property
    def attempt(self) -> CurrentAttempt | None:
        """The recorded state of the current RayCluster; None if nothing is recorded of it."""
        attempt = self.job.status.current_attempt
        return attempt if attempt and self.cluster and attempt.ray_cluster_uid == self.cluster.uid else None

    @property
    def stop_request(self) -> StopRequest | None:
        """The recorded request to stop the program of the current RayCluster."""
        return self.attempt.stop if self.attempt else None

    @property
    def is_submitted(self) -> bool:
        """Whether the status records that the head has accepted the program."""
        return self.attempt is not None and self.attempt.accepted_time is not None

    @property
    def is_step_submitted(self) -> bool:
        """Whether the status records that the head has accepted `pending_step`."""
        attempt = self.attempt
        step = self.pending_step
        return attempt is not None and step is not None and attempt.prepare_step == step.name

    @property
    def is_preflight_submitted(self) -> bool:
        """Whether the status records that the head has accepted the preflight checks."""
        return self.attempt is not None and self.attempt.preflight_accepted_time is not None

    @property
    def is_between_executions(self) -> bool:
        """Whether an earlier execution on the RayCluster has ended, and the head has no Ray job of the next one."""
        attempt = self.attempt
        if attempt is None or attempt.execution == 1:
            return False
        return not (attempt.accepted_time or attempt.preflight_accepted_time or attempt.prepare_step)

    @property
    def is_head_replaced(self) -> bool:
        """Whether a head pod exists that is not the recorded one."""
        recorded = self.attempt.head_pod_uid if self.attempt else None
        return bool(recorded and self.head and recorded != self.head.uid)


def choose_progress_interval(running_jobs: int) -> float:
    """Seconds between status writes of progress, so that up to 600 jobs cause at most 20 of them per second."""
    return min(MAX_PROGRESS_INTERVAL_S, max(MIN_PROGRESS_INTERVAL_S, PROGRESS_INTERVAL_PER_JOB_S * running_jobs))
