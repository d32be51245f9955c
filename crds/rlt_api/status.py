"""What the operator reports: the status of an RLTrainingJob. Conditions are the contract, phase is for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict

from rlt_api.model import ApiModel, JsonObject


class Phase(StrEnum):
    """A summary of the conditions for people. Programs read the conditions."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class Condition(ApiModel):
    """One aspect of the job's state, in the form of Kubernetes' metav1.Condition (KEP-1623)."""

    type: str
    """Accepted, Admitted, FabricVerified, ClusterReady, PreflightPassed, Running, Succeeded, Failed, Suspended,
    Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """One word in CamelCase, a documented constant."""
    message: str
    """A sentence for people, with the scheduler's, kubelet's or program's own words where there are any."""
    last_transition_time: str
    """When status last changed (RFC 3339, UTC)."""
    observed_generation: int
    """The generation of the spec that this was said of."""


class ProgressMetrics(ApiModel):
    """The latest step's numbers."""

    model_config = ConfigDict(allow_inf_nan=True)  # of a training that diverges; as JSON it is null

    reward: float | None = None
    """Mean reward of the step's responses (critic/rewards/mean)."""
    kl: float | None = None
    """Mean k3 estimate of the KL divergence to the reference model (actor/kl_loss)."""
    entropy: float | None = None
    """Mean entropy of the policy's next-token distribution, in nats (actor/entropy)."""
    response_length: float | None = None
    """Mean length of the responses, in tokens (response_length/mean)."""
    loss: float | None = None
    """The policy loss (actor/pg_loss)."""
    grad_norm: float | None = None
    """Norm of the gradient before clipping (actor/grad_norm)."""
    clip_fraction: float | None = None
    """Share of tokens that PPO's clip acted on (actor/pg_clipfrac)."""


class Progress(ApiModel):
    """How far the training is and how it learns."""

    stage: str | None = None
    """What the trainer is doing: preparing, warmup, training, exporting or finished."""
    step: int
    """Steps completed."""
    total_steps: int
    """Steps in all; 0 where a command does not say how many."""
    percent: int
    """Share of steps completed, 0 to 100."""
    display: str
    """The same for the PROGRESS column: 45%, or step 12 where the total is not known."""
    eta: str | None = None
    """Estimated time to the end, such as 3m10s."""
    tokens_per_second: float | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    metrics: ProgressMetrics = ProgressMetrics()
    """The latest step's numbers."""
    last_updated: str
    """When the trainer last reported (RFC 3339, UTC)."""


class CheckpointStatus(ApiModel):
    """What has been saved."""

    latest_step: int | None = None
    """The step of the latest complete checkpoint."""
    path: str | None = None
    """The run directory's checkpoints folder, as the pods see it."""
    exported_path: str | None = None
    """The finished model in Hugging Face's format, as the pods see it."""


class RayClusterStatus(ApiModel):
    """The Ray cluster of the job."""

    name: str
    """Name of the RayCluster."""
    ready_workers: int = 0
    """Worker pods that are ready."""
    desired_workers: int = 0
    """Worker pods that the job asks for."""
    job_id: str | None = None
    """The submission id of the Ray job."""
    preflight_job_id: str | None = None
    """The submission id of the Ray job that checks the nodes before."""


class RuntimeSnapshot(ApiModel):
    """The runtime as it was when the job was accepted. The job keeps it to its end."""

    name: str
    """Name of the RLRuntime."""
    generation: int
    """Its generation then."""
    spec: JsonObject
    """Its spec then."""


class NetworkVariable(ApiModel):
    """One environment variable with its reason."""

    name: str
    """Its name."""
    value: str
    """Its value. Those of Secrets and ConfigMaps are not read."""
    rule: str
    """Why it is set so."""
    source: str
    """Where that is written, or who of user and RLRuntime has said it."""


class NetworkRefusal(ApiModel):
    """Why the nodes cannot do what the job asks of them."""

    code: str
    """One word in CamelCase, a reason of FabricVerified."""
    message: str
    """The evidence and the remedy."""


class NetworkAttachment(ApiModel):
    """How worker pods get at the fabric."""

    mode: str
    """podNetwork, hostNetwork, multus or dra."""
    resources: dict[str, int] = {}
    """Extended resources of one worker on a whole node; one on a part of it takes its part."""
    networks: list[str] = []
    """Networks of GKE's multi-networking, in the order of the pods' interfaces."""
    compute_domain: bool = False
    """Whether workers claim a channel of the job's ComputeDomain (NVLink over nodes)."""
    mounts: dict[str, str] = {}
    """Paths of the host, and where workers see them."""
    capabilities: list[str] = []
    """Capabilities of the workers' containers."""
    supplemental_groups: list[int] = []
    """Groups of the workers' processes."""


class NetworkStatus(ApiModel):
    """What was decided about network and accelerators before the Ray cluster was made, and why."""

    profile: str
    """The profile, as in docs/reference/network-profiles.md."""
    fabric: str
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or mnnvl+ and one of them."""
    vendor: str
    """nvidia, amd or none."""
    agree: bool
    """Whether all candidate nodes want the same. If not, the profile is the vendor's generic one."""
    candidates: int
    """Nodes that could take a worker: ready, not cordoned, tolerated, well, with enough accelerators."""
    accelerators_per_node: int = 0
    """The fewest accelerators that a candidate has."""
    refused: NetworkRefusal | None = None
    """What keeps the job from starting."""
    evidence: list[str] = []
    """What the nodes say, and how many of them."""
    env: list[NetworkVariable] = []
    """Variables of all pods that belong to network and accelerators, the user's own among them."""
    overridden_by_user: list[str] = []
    """Variables of the profile that the user has set to something else."""
    attach: NetworkAttachment
    """How worker pods get at the fabric."""
    avoided: list[str] = []
    """Nodes that a health controller has marked, or that were at fault in an earlier attempt: no worker goes there."""
    warnings: list[str] = []
    """What should be known of all this."""


class PreflightCheck(ApiModel):
    """What a check on the job's nodes has found."""

    name: str
    """The check, as in docs/preflight.md."""
    result: Literal["passed", "warned", "failed"]
    """Whether the training can start: not if a check failed."""
    value: str | None = None
    """What was measured, with its unit; of several pods the worst."""
    pods: list[str] = []
    """The pods that it speaks of; none: all."""
    nodes: list[str] = []
    """Their nodes."""
    message: str
    """What was found."""
    remedy: str | None = None
    """What to do about it."""


class Attempt(ApiModel):
    """An attempt that failed, of a job that may have several (spec.failurePolicy.maxRestarts)."""

    number: int
    """The first one is 1."""
    ray_cluster_uid: str
    """Uid of its RayCluster, which tells attempts apart."""
    start_time: str | None = None
    """When its training started (RFC 3339, UTC). Absent if it did not."""
    completion_time: str
    """When it failed (RFC 3339, UTC)."""
    reason: str
    """Why, as a reason of Failed."""
    message: str
    """Why, in short."""
    step: int | None = None
    """The step that it had completed, as far as that is known."""
    node_at_fault: str | None = None
    """The node that was at fault. Absent if nothing shows that one was."""
    evidence: str | None = None
    """What shows it."""


class RLTrainingJobStatus(ApiModel):
    """What became of the job so far."""

    observed_generation: int | None = None
    """The generation of the spec that this status speaks of."""
    phase: Phase | None = None
    """Pending, Provisioning, Running, Succeeded, Failed or Suspended: a summary for people."""
    message: str | None = None
    """Why the job is in this phase."""
    conditions: list[Condition] = []
    """The contract for programs, one entry a type."""
    progress: Progress | None = None
    """How far the training is and how it learns."""
    checkpoint: CheckpointStatus | None = None
    """What has been saved."""
    ray_cluster: RayClusterStatus | None = None
    """The Ray cluster while there is one."""
    restarts: int | None = None
    """How many attempts have failed and were followed by another one, for the RESTARTS column."""
    attempts: list[Attempt] = []
    """The latest attempts that failed, where spec.failurePolicy.maxRestarts is not 0."""
    runtime_snapshot: RuntimeSnapshot | None = None
    """The runtime as it was when the job was accepted. Later changes of it do not touch this job."""
    network: NetworkStatus | None = None
    """What was decided about network and accelerators, and why. The Ray cluster is made from it."""
    preflight: list[PreflightCheck] = []
    """What the checks before the training have found on the Ray cluster that there is, or was last."""
    model: str | None = None
    """The model that is trained, for the MODEL column."""
    algorithm: str | None = None
    """The advantage estimator, or the command's program, for the ALGORITHM column."""
    gpus: int | None = None
    """Accelerators that the job asks for, over all workers."""
    start_time: str | None = None
    """When training first started (RFC 3339, UTC)."""
    pending_since: str | None = None
    """Since when the job has been waiting for its cluster, for spec.pendingDeadlineSeconds (RFC 3339, UTC)."""
    active_seconds: int | None = None
    """How long the training ran before its latest suspension or restart, for spec.activeDeadlineSeconds."""
    completion_time: str | None = None
    """When the job succeeded or failed (RFC 3339, UTC)."""
