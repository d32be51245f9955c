"""The condition types of an RLTrainingJob and their reasons, which are stable for programs."""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Self


class ConditionType(StrEnum):
    """The conditions, in the order of the status. Accepted, ClusterReady, Running and Reconciling exist from the first
    reconciliation on. Admitted exists only if the job names a queue, FabricVerified after the nodes were observed,
    PreflightPassed only with spec.preflight.level, Promoted only with spec.evaluation[].promoteIf, Published only with
    spec.publish, Suspended from the first suspension on, and Succeeded, Failed and Stalled only while they are True."""

    ACCEPTED = "Accepted"
    """The spec is valid."""
    ADMITTED = "Admitted"
    """The queue has admitted the job. Unknown while Kueue has not reconciled the RayCluster."""
    FABRIC_VERIFIED = "FabricVerified"
    """All nodes that can run a worker need the same network settings and meet the requirements of the job. Unknown
    while no such node exists."""
    CLUSTER_READY = "ClusterReady"
    """The head and all workers of the Ray cluster are ready."""
    PREFLIGHT_PASSED = "PreflightPassed"
    """No preflight check on the nodes of this Ray cluster has failed. Unknown while the checks run; False before them
    or if one failed."""
    RUNNING = "Running"
    """The Ray job is running. Unknown while Ray does not respond. Its reason in a job that has failed is how the last
    attempt ended."""
    SUCCEEDED = "Succeeded"
    """The training is complete. True is final."""
    FAILED = "Failed"
    """The job has failed and does not restart. True is final. Its reason is the code of the first entry in
    status.findings, if that is an error; otherwise one of Reason."""
    PROMOTED = "Promoted"
    """The job has succeeded, and the exported model passes promoteIf of each suite that has it. Unknown until the job
    ends; True and False are final."""
    PUBLISHED = "Published"
    """The exported model is in all places of spec.publish. Unknown until the job ends; True and False are final."""
    SUSPENDED = "Suspended"
    """The Ray cluster is deleted because spec.suspend is true, or because a rule over the metrics paused the job."""
    RECONCILING = "Reconciling"
    """kstatus: the current state does not match the spec yet."""
    STALLED = "Stalled"
    """kstatus: the job cannot progress without a manual change; the message describes it."""


class Kind(Enum):
    """What a reason means for the job."""

    STATE = auto()
    """An expected state."""
    PROBLEM = auto()
    """A problem that can end without a new job."""
    FAILURE = auto()
    """The cause of a failed job. Failed is True, and other conditions repeat the reason."""


class Reason(StrEnum):
    """The reason for the status of a condition."""

    problem: bool
    """Whether its event is of type Warning."""
    final: bool
    """Whether it is the reason of Failed, which alone has the event."""

    def __new__(cls, value: str, kind: Kind) -> Self:
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.problem = kind != Kind.STATE
        reason.final = kind == Kind.FAILURE
        return reason

    VALID = "Valid", Kind.STATE
    """Accepted: no rule has a finding."""
    INVALID_SPEC = "InvalidSpec", Kind.FAILURE
    """Accepted, Failed: the spec is invalid; the message names field, value and fix."""

    RUNTIME_NOT_FOUND = "RuntimeNotFound", Kind.PROBLEM
    """Accepted: the RLRuntime in spec.runtimeRef does not exist; the job waits for it."""

    WAITING_FOR_JOB = "WaitingForJob", Kind.STATE
    """Accepted: the job in spec.checkpoint.resumeFromJob does not exist or has not ended; the job waits for it."""
    CHECKPOINT_NOT_FOUND = "CheckpointNotFound", Kind.FAILURE
    """Accepted, Failed: the job in spec.checkpoint.resumeFromJob has ended, and this job cannot resume from it; the
    message contains the reason."""

    WAITING_FOR_ACCELERATORS = "WaitingForAccelerators", Kind.STATE
    """ClusterReady: the accelerators of the namespace and of the job exceed maxPerNamespace of the RLRuntime."""
    WAITING_FOR_QUEUE = "WaitingForQueue", Kind.STATE
    """Admitted, ClusterReady: the queue has not admitted the job yet, or has evicted it."""
    QUOTA_RESERVED = "QuotaReserved", Kind.STATE
    """Admitted: the queue has reserved quota for the job."""
    QUEUE_SILENT = "QueueSilent", Kind.STATE
    """Admitted: Kueue has not reconciled the RayCluster, which starts without it."""

    FABRIC_FOUND = "FabricFound", Kind.STATE
    """FabricVerified: the nodes agree; the message contains profile, fabric and number of nodes."""
    NO_NODES = "NoNodes", Kind.STATE
    """FabricVerified: no candidate node exists yet; the settings are those expected for the job's selectors."""
    NODES_DISAGREE = "NodesDisagree", Kind.PROBLEM
    """FabricVerified: the nodes need different settings or have contradictory facts; the generic profile is used."""
    UNSUPPORTED_ACCELERATOR = "UnsupportedAccelerator", Kind.PROBLEM
    """FabricVerified: no trainer image supports the accelerator."""
    TWO_VENDORS = "TwoVendors", Kind.PROBLEM
    """FabricVerified: one process group has accelerators of two vendors."""
    RESOURCE_NOT_FOUND = "ResourceNotFound", Kind.PROBLEM
    """FabricVerified: no node has the resource of the accelerator."""
    TOO_MANY_ACCELERATORS = "TooManyAccelerators", Kind.PROBLEM
    """FabricVerified: one worker requests more accelerators than any node has."""
    NO_CANDIDATE = "NoCandidate", Kind.PROBLEM
    """FabricVerified: every node that the job selects is cordoned, unhealthy, not ready or not tolerated."""
    PROFILE_DOES_NOT_FIT = "ProfileDoesNotFit", Kind.PROBLEM
    """FabricVerified: network.profile is for another vendor."""
    UNKNOWN_PROFILE = "UnknownProfile", Kind.PROBLEM
    """FabricVerified: network.profile does not exist."""
    ATTACH_NOT_POSSIBLE = "AttachNotPossible", Kind.PROBLEM
    """FabricVerified: network.attach is not supported by the profile, or its annotation or resource claim is
    missing."""
    RDMA_NOT_FOUND = "RdmaNotFound", Kind.PROBLEM
    """FabricVerified: network.require is rdma, and the nodes do not have it."""
    RDMA_NOT_ATTACHED = "RdmaNotAttached", Kind.PROBLEM
    """FabricVerified: network.require is rdma, and pods cannot attach to it."""
    RDMA_DISABLED_BY_USER = "RdmaDisabledByUser", Kind.PROBLEM
    """FabricVerified: network.require is rdma, and a variable of the user disables it."""
    MIXED_FABRIC = "MixedFabric", Kind.PROBLEM
    """FabricVerified: network.require is rdma, and the nodes do not agree."""
    CONTRADICTORY_LABELS = "ContradictoryLabels", Kind.PROBLEM
    """FabricVerified: network.require is rdma, and the facts of the nodes are contradictory."""
    HCA_MATCHES_NOTHING = "HcaMatchesNothing", Kind.PROBLEM
    """FabricVerified: network.hcas or NCCL_IB_HCA names adapters that do not exist."""
    DEVICE_VISIBILITY = "DeviceVisibility", Kind.PROBLEM
    """FabricVerified: variables for the visibility of devices are contradictory."""

    KUBERAY_MISSING = "KubeRayMissing", Kind.PROBLEM
    """ClusterReady: the RayCluster CRD is not installed."""
    KUBERAY_TOO_OLD = "KubeRayTooOld", Kind.PROBLEM
    """ClusterReady: the RayCluster CRD lacks a field that the job needs; the message names it."""
    KUBERAY_TOO_NEW = "KubeRayTooNew", Kind.PROBLEM
    """ClusterReady: the RayCluster CRD has replaced a field that the job needs; the message names it."""
    KUBERAY_SILENT = "KubeRaySilent", Kind.PROBLEM
    """ClusterReady: the KubeRay operator has not reconciled the RayCluster."""
    AGENT_SANDBOX_MISSING = "AgentSandboxMissing", Kind.PROBLEM
    """ClusterReady: the job needs the CRD of agent-sandbox, which is not installed."""
    NAME_TAKEN = "NameTaken", Kind.PROBLEM
    """ClusterReady: an object with the name of one of the job's objects exists and does not belong to the job; the
    message names its kind and name. The operator does not change it."""
    EARLIER_CLUSTER = "EarlierCluster", Kind.STATE
    """ClusterReady: the Ray cluster of an earlier run is still terminating."""
    CLUSTER_REJECTED = "ClusterRejected", Kind.PROBLEM
    """ClusterReady: the API server or KubeRay rejected an object of the job; the message quotes the error."""
    CREATING = "Creating", Kind.STATE
    """ClusterReady: the RayCluster is created and has no pods yet."""
    STARTING = "Starting", Kind.STATE
    """ClusterReady: the pods are starting."""
    POD_CREATION_FAILED = "PodCreationFailed", Kind.PROBLEM
    """ClusterReady: pods cannot be created, for example because of a quota; the message quotes the API server."""
    UNSCHEDULABLE = "Unschedulable", Kind.PROBLEM
    """ClusterReady: a pod cannot be scheduled; the message quotes the scheduler."""
    IMAGE_PULL_FAILED = "ImagePullFailed", Kind.PROBLEM
    """ClusterReady: the image cannot be pulled; the message quotes the kubelet."""
    CONTAINER_CONFIG_FAILED = "ContainerConfigFailed", Kind.PROBLEM
    """ClusterReady: a container cannot be created; the message quotes the kubelet."""
    CONTAINER_CRASHED = "ContainerCrashed", Kind.PROBLEM
    """ClusterReady: a container exited; the message contains its exit code and its last output."""
    HEAD_UNREACHABLE = "HeadUnreachable", Kind.PROBLEM
    """ClusterReady: the head is ready, and a worker has waited 30 s for a connection to it."""
    VOLUME_FAILED = "VolumeFailed", Kind.PROBLEM
    """ClusterReady: a volume cannot be mounted; the message quotes the kubelet."""
    READY = "Ready", Kind.STATE
    """ClusterReady: head and workers are ready."""
    WORKERS_MISSING = "WorkersMissing", Kind.PROBLEM
    """ClusterReady: the program has the workers that it needs. Others, which only generate, cannot start; the message
    quotes the cause."""
    STOPPING = "Stopping", Kind.STATE
    """Suspended, Running: the training is saving a checkpoint and stopping."""
    STOP_TIMEOUT = "StopTimeout", Kind.PROBLEM
    """Suspended: the program did not stop in time, and the Ray cluster is released without waiting for a checkpoint."""
    RELEASED = "Released", Kind.STATE
    """ClusterReady: the Ray cluster is deleted and not needed."""
    KEPT = "Kept", Kind.STATE
    """ClusterReady: the Ray cluster of the failed job is kept for spec.failurePolicy.keepClusterSeconds."""
    RELEASING = "Releasing", Kind.STATE
    """ClusterReady, Suspended, Reconciling: the pods of the Ray cluster are terminating."""

    CHECKING = "Checking", Kind.STATE
    """PreflightPassed, Running: the preflight checks are running."""
    CHECKED = "Checked", Kind.STATE
    """PreflightPassed: no preflight check has failed; the message names those with warnings."""
    PREFLIGHT_FAILED = "PreflightFailed", Kind.FAILURE
    """PreflightPassed, Failed: a preflight check has failed; the message names check, node and fix."""

    PREPARING = "Preparing", Kind.STATE
    """Running: a step of spec.framework.prepare runs before the program."""
    PREPARE_FAILED = "PrepareFailed", Kind.FAILURE
    """Failed: a step of spec.framework.prepare has failed; the message contains its name and last output."""

    WAITING_FOR_CLUSTER = "WaitingForCluster", Kind.STATE
    """Running, PreflightPassed: the Ray cluster is not ready."""
    SUBMITTED = "Submitted", Kind.STATE
    """Running: the Ray job is submitted and not started."""
    SUBMISSION_REJECTED = "SubmissionRejected", Kind.PROBLEM
    """Running: Ray rejected the training, its preflight checks or a step before them; the message quotes the error."""
    RAY_UNREACHABLE = "RayUnreachable", Kind.PROBLEM
    """Running: the job API of Ray does not respond, which alone is not a failure."""
    STARTED = "Started", Kind.STATE
    """Running: the Ray job is running."""
    CHECKPOINT_FAILED = "CheckpointFailed", Kind.PROBLEM
    """Running: the Ray job is running, and its latest checkpoint could not be saved; the message quotes the error."""
    NO_STEP_REPORTED = "NoStepReported", Kind.PROBLEM
    """Running: a command has reported no step for half an hour. It continues."""
    RESTARTING = "Restarting", Kind.PROBLEM
    """Running: the attempt has failed or was disrupted, and spec.failurePolicy allows another one; the message
    describes the cause and the start of the next attempt."""

    COMPLETED = "Completed", Kind.STATE
    """Succeeded: the program exited with code 0."""
    PROGRAM_FAILED = "ProgramFailed", Kind.FAILURE
    """Failed: the program exited with an error; the message contains its last output."""
    NO_PROGRESS = "NoProgress", Kind.FAILURE
    """Running, Failed: the program has made no progress within spec.failurePolicy.progressDeadlineSeconds; the message
    contains the last finished step and where the stacks of the processes are."""
    HEAD_LOST = "HeadLost", Kind.FAILURE
    """Failed: the Ray head was replaced during the run, and the Ray job was lost."""
    DISRUPTED = "Disrupted", Kind.FAILURE
    """Failed: Kubernetes ended a pod for a cause outside of the job, and spec.failurePolicy.maxDisruptions is used
    up."""
    STOPPED = "Stopped", Kind.FAILURE
    """Failed: the Ray job was stopped outside rlt."""
    CANCELLED = "Cancelled", Kind.FAILURE
    """Failed: the job has the annotation `rlt.dev/cancel: "true"`."""
    DEADLINE_EXCEEDED = "DeadlineExceeded", Kind.FAILURE
    """Failed: the training ran longer than spec.activeDeadlineSeconds."""
    PENDING_DEADLINE_EXCEEDED = "PendingDeadlineExceeded", Kind.FAILURE
    """Failed: the training did not start within spec.pendingDeadlineSeconds; the message describes what the job waited
    for."""
    GATES_PENDING = "GatesPending", Kind.STATE
    """Promoted: the job has not ended."""
    GATES_PASSED = "GatesPassed", Kind.STATE
    """Promoted: all suites with promoteIf pass; the message contains their figures."""
    GATE_FAILED = "GateFailed", Kind.STATE
    """Promoted: a suite does not pass; the message contains its figures."""
    GATE_UNKNOWN = "GateUnknown", Kind.STATE
    """Promoted: the figures of a suite are missing, or the job has failed; the message contains the reason."""
    PUBLICATION_PENDING = "PublicationPending", Kind.STATE
    """Published: the job has not ended."""
    MODEL_PUBLISHED = "ModelPublished", Kind.STATE
    """Published: the model is in all places of spec.publish; the message contains them with their revisions."""
    NOT_PUBLISHED = "NotPublished", Kind.STATE
    """Published: the model is not promoted, or the job has failed. Nothing is published."""
    PUBLICATION_FAILED = "PublicationFailed", Kind.PROBLEM
    """Published: the model could not be published in a place of spec.publish; the message contains the reason and what
    to do. The export and the checkpoints are unchanged."""
    SUSPEND_REQUESTED = "SuspendRequested", Kind.STATE
    """Suspended: spec.suspend is true."""
    PAUSED_BY_RULE = "PausedByRule", Kind.PROBLEM
    """Suspended: a rule of spec.observability.metricRules whose action is pause is broken; the message has its evidence
    and how to resume."""
    NOT_REQUESTED = "NotRequested", Kind.STATE
    """Suspended: the job was suspended before, and spec.suspend is false."""
    PROGRESSING = "Progressing", Kind.STATE
    """Reconciling: the job is progressing."""
    REQUEST_FAILED = "RequestFailed", Kind.PROBLEM
    """Reconciling, Stalled: a request of the operator to the API server or to Ray failed; the message quotes the error
    and contains the time of the next attempt. Stalled if the same request would be rejected again."""
    INTERNAL_ERROR = "InternalError", Kind.PROBLEM
    """Reconciling, Stalled: the operator has failed on the job, which is Stalled, or needs over a second for each
    reconciliation of it. The message contains the class of the error and the time of the next attempt."""
    SETTLED = "Settled", Kind.STATE
    """Reconciling: the current state matches the spec."""


def find_reason(text: str) -> Reason | None:
    """Find the reason of a condition. None for the code of a finding, and for a reason of a newer version."""
    return next((reason for reason in Reason if reason.value == text), None)
