"""The status of an RLTrainingJob. Conditions are the contract for programs; the phase is for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from rlt_api.model import ApiModel, JsonObject


class Phase(StrEnum):
    """A summary of the conditions for people. Programs should use the conditions."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class Condition(ApiModel):
    """One aspect of the state of the job, as in metav1.Condition of Kubernetes (KEP-1623)."""

    type: str
    """Accepted, Admitted, FabricVerified, ClusterReady, PreflightPassed, Running, Succeeded, Failed, Suspended,
    Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str
    """Reason for the status, a documented constant in CamelCase."""
    message: str
    """Description for people, with the message of the scheduler, the kubelet or the program if there is one."""
    last_transition_time: str
    """Time of the last change of the status (RFC 3339, UTC)."""
    observed_generation: int
    """Generation of the spec that the condition is based on."""


class ProgressMetrics(ApiModel):
    """Metrics of the latest step."""

    model_config = ConfigDict(allow_inf_nan=True)  # a diverging training has such values; JSON has null instead

    reward: float | None = None
    """Mean reward of the responses (critic/rewards/mean)."""
    kl: float | None = None
    """Mean k3 estimate of the KL divergence to the reference model (actor/kl_loss)."""
    entropy: float | None = None
    """Mean entropy of the policy's next-token distribution, in nats (actor/entropy)."""
    response_length: float | None = None
    """Mean length of the responses, in tokens (response_length/mean)."""
    loss: float | None = None
    """Policy loss (actor/pg_loss)."""
    grad_norm: float | None = None
    """Norm of the gradient before clipping (actor/grad_norm)."""
    clip_fraction: float | None = None
    """Share of tokens that PPO clipped (actor/pg_clipfrac)."""


class Progress(ApiModel):
    """Progress and metrics of the training."""

    stage: str | None = None
    """Stage of the trainer: preparing, warmup, training, exporting or finished."""
    step: int
    """Number of completed steps."""
    total_steps: int
    """Total number of steps; 0 if a command does not report it."""
    percent: int
    """Completed steps in percent."""
    display: str
    """Text of the PROGRESS column: 45%, or step 12 if the total is unknown."""
    eta: str | None = None
    """Estimated time to the end, such as 3m10s."""
    tokens_per_second: float | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    metrics: ProgressMetrics = ProgressMetrics()
    """Metrics of the latest step."""
    last_updated: str
    """Time of the latest report of the trainer (RFC 3339, UTC)."""


class CheckpointStatus(ApiModel):
    """The saved checkpoints and the exported model."""

    latest_step: int | None = None
    """Step of the latest complete checkpoint."""
    path: str | None = None
    """Path of the checkpoints folder in the pods."""
    exported_path: str | None = None
    """Path of the exported model in Hugging Face format in the pods."""


class RayClusterStatus(ApiModel):
    """The Ray cluster of the job."""

    name: str
    """Name of the RayCluster."""
    ready_workers: int = 0
    """Number of ready worker pods."""
    desired_workers: int = 0
    """Number of desired worker pods."""
    job_id: str | None = None
    """Submission ID of the Ray job."""
    preflight_job_id: str | None = None
    """Submission ID of the Ray job of the preflight checks."""


class RuntimeOrigin(ApiModel):
    """The runtime that the spec was resolved with."""

    name: str
    """Name of the RLRuntime."""
    generation: int
    """Generation of the RLRuntime at that time."""
    accelerators: list[str] = []
    """Resources of the accelerators of its node pools, such as nvidia.com/gpu."""


class RuntimeSnapshot(ApiModel):
    """An RLRuntime."""

    name: str
    """Name of the RLRuntime."""
    generation: int
    """Generation of the RLRuntime."""
    spec: JsonObject
    """Spec of the RLRuntime."""


class NetworkVariable(ApiModel):
    """An environment variable and the reason for its value."""

    name: str
    """Name of the variable."""
    value: str
    """Value of the variable. Values of Secrets and ConfigMaps are not read."""
    rule: str
    """Reason for the value."""
    source: str
    """Source of the reason, or user or RLRuntime if one of them sets the variable."""


class NetworkRejection(ApiModel):
    """The reason why the nodes do not meet the requirements of the job."""

    code: str
    """A reason of the condition FabricVerified."""
    message: str
    """The evidence and the fix."""


class NetworkAttachment(ApiModel):
    """How worker pods attach to the fabric."""

    mode: str
    """podNetwork, hostNetwork, multus or dra."""
    resources: dict[str, int] = {}
    """Extended resources of a worker on a whole node. A worker on a part of a node gets a part of them."""
    networks: list[str] = []
    """Networks of GKE multi-networking, in the order of the interfaces of the pods."""
    compute_domain: bool = False
    """Whether workers claim a channel of the job's ComputeDomain (NVLink between nodes)."""
    mounts: dict[str, str] = {}
    """Path on the host to path in the worker pods."""
    capabilities: list[str] = []
    """Capabilities of the worker containers."""
    supplemental_groups: list[int] = []
    """Supplementary groups of the worker processes."""


class NetworkStatus(ApiModel):
    """The decision about fabric and accelerators before the Ray cluster is created, with its reasons."""

    profile: str
    """The network profile, as in docs/networking.md."""
    fabric: str
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or mnnvl+ and one of them."""
    vendor: str
    """nvidia, amd or none."""
    agree: bool
    """Whether all candidate nodes need the same settings. If not, the generic profile of the vendor is used."""
    candidates: int
    """Number of nodes that can run a worker: ready, schedulable, tolerated, healthy, with enough accelerators."""
    accelerators_per_node: int = 0
    """Minimum number of accelerators of a candidate node."""
    refused: NetworkRejection | None = None
    """The reason why the job cannot start."""
    evidence: list[str] = []
    """Detected facts, with the number of nodes for each."""
    env: list[NetworkVariable] = []
    """Variables of all pods for network and accelerators, including those of the user."""
    overridden_by_user: list[str] = []
    """Variables of the profile that the user overrides."""
    attach: NetworkAttachment
    """How worker pods attach to the fabric."""
    avoided: list[str] = []
    """Nodes excluded from the job: a health controller marked them unhealthy, or they caused the failure of an earlier
    attempt."""
    warnings: list[str] = []
    """Warnings about the decision."""


class PreflightCheck(ApiModel):
    """The result of a preflight check."""

    name: str
    """Name of the check, as in docs/preflight.md."""
    result: Literal["passed", "warned", "failed"]
    """The training does not start if a check failed."""
    value: str | None = None
    """The measured value with its unit; the worst one of several pods."""
    pods: list[str] = []
    """The affected pods. Empty means all pods."""
    nodes: list[str] = []
    """The nodes of these pods."""
    message: str
    """Description of the result."""
    remedy: str | None = None
    """The fix."""


class Disruption(ApiModel):
    """A pod of the current Ray cluster that Kubernetes ends for a cause outside of the job."""

    ray_cluster_uid: str
    """UID of the RayCluster."""
    reason: str
    """Reason of the condition DisruptionTarget of the pod, the reason of the kubelet, PodDeleted, NodeDeleted,
    NodeNotReady, or the taint of the node."""
    message: str
    """The pod, its node and the message of the kubelet."""
    time: str
    """Time when the operator observed it (RFC 3339, UTC)."""


class Attempt(ApiModel):
    """An attempt that failed or was disrupted (spec.failurePolicy)."""

    number: int
    """Number of the attempt, from 1."""
    ray_cluster_uid: str
    """UID of its RayCluster, which identifies the attempt."""
    start_time: str | None = None
    """Time when the training started (RFC 3339, UTC). Absent if it did not start."""
    completion_time: str
    """Time when the operator observed the end of the attempt (RFC 3339, UTC)."""
    reason: str
    """Reason of the failure, as in the condition Failed: Disrupted for a disruption."""
    disruption: str | None = None
    """Reason of the disruption, as in status.disruption. Absent if the attempt failed by itself."""
    message: str
    """Short description of the failure."""
    step: int | None = None
    """Last completed step, if known."""
    node_at_fault: str | None = None
    """Name of the node that caused the failure. Absent if there is no evidence."""
    evidence: str | None = None
    """Evidence that the node caused the failure."""


class StopRequest(ApiModel):
    """A request to stop the program. The operator records it, and sends it to Ray on a later reconciliation."""

    reason: str
    """SuspendRequested, Cancelled or DeadlineExceeded."""
    time: str
    """Time of the request (RFC 3339, UTC). The program has RAY_JOB_STOP_WAIT_TIME_S from then on to save and exit."""


class CurrentAttempt(ApiModel):
    """State of the current RayCluster that the operator records before it acts on it. Times are RFC 3339, UTC."""

    ray_cluster_uid: str
    """UID of the RayCluster, which identifies the attempt."""
    cluster_resumed_time: str | None = None
    """Time when the latest suspension of the RayCluster ended, which identifies its admission by Kueue."""
    head_pod_uid: str | None = None
    """UID of the head pod that the Ray jobs are submitted to. It is fixed when Ray has accepted the first one."""
    preflight_accepted_time: str | None = None
    """Time when the head was first seen with the Ray job of the preflight checks."""
    accepted_time: str | None = None
    """Time when the head was first seen with the Ray job of the program."""
    stop: StopRequest | None = None
    """The request to stop the program."""


class RLTrainingJobStatus(ApiModel):
    """The observed state of the job."""

    observed_generation: int | None = None
    """Generation of the spec that the status is based on."""
    phase: Phase | None = None
    """Summary of the conditions for people: Pending, Provisioning, Running, Succeeded, Failed or Suspended."""
    message: str | None = None
    """Reason for the phase."""
    conditions: list[Condition] = []
    """Conditions for programs, one entry for each type."""
    progress: Progress | None = None
    """Progress and metrics of the training."""
    checkpoint: CheckpointStatus | None = None
    """The saved checkpoints and the exported model."""
    ray_cluster: RayClusterStatus | None = None
    """The Ray cluster, while it exists."""
    restarts: int | None = None
    """Number of new attempts after a failure."""
    disruptions: int | None = None
    """Number of new attempts after a disruption."""
    attempts: list[Attempt] = []
    """The latest attempts that failed or were disrupted. Absent for the only attempt of a job without restarts."""
    current_attempt: CurrentAttempt | None = None
    """State of the current RayCluster, while it or one of its pods exists."""
    disruption: Disruption | None = None
    """The first disruption of the current Ray cluster."""
    resolved_spec: Annotated[JsonObject, Field(json_schema_extra={"x-kubernetes-map-type": "atomic"})] | None = None
    """The spec at the time of acceptance, merged with the runtime, with all defaults. Every attempt uses it: a changed
    runtime and an upgrade of the operator do not affect this job."""
    runtime: RuntimeOrigin | None = None
    """The runtime that resolvedSpec contains."""
    runtime_snapshot: RuntimeSnapshot | None = None
    """Replaced by resolvedSpec. Read from jobs that an operator without resolvedSpec accepted, and then removed."""
    network: NetworkStatus | None = None
    """The decision about fabric and accelerators. The Ray cluster is created from it."""
    preflight: list[PreflightCheck] = []
    """Results of the preflight checks on the current or the latest Ray cluster."""
    model: str | None = None
    """The trained model, for the MODEL column."""
    algorithm: str | None = None
    """The advantage estimator or the program of the command, for the ALGORITHM column."""
    gpus: int | None = None
    """Number of requested accelerators over all workers."""
    start_time: str | None = None
    """Time when the training first started (RFC 3339, UTC)."""
    pending_since: str | None = None
    """Time since when the job waits for its training to start, for spec.pendingDeadlineSeconds (RFC 3339, UTC)."""
    active_since: str | None = None
    """Time since when the training runs without a suspension or restart, for spec.activeDeadlineSeconds (RFC 3339,
    UTC)."""
    active_seconds: int | None = None
    """Run time of the training before activeSince, for spec.activeDeadlineSeconds."""
    completion_time: str | None = None
    """Time when the operator recorded the end of the job (RFC 3339, UTC). ttlSecondsAfterFinished counts from then
    on."""
