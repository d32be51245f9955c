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
    """Accepted, Admitted, ClusterReady, Running, Succeeded, Failed, Suspended, Reconciling or Stalled."""
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
    """Steps in all."""
    percent: int
    """Share of steps completed, 0 to 100."""
    display: str
    """The same for the PROGRESS column, such as 45%."""
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


class RuntimeSnapshot(ApiModel):
    """The runtime as it was when the job was accepted. The job keeps it to its end."""

    name: str
    """Name of the RLRuntime."""
    generation: int
    """Its generation then."""
    spec: JsonObject
    """Its spec then."""


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
    runtime_snapshot: RuntimeSnapshot | None = None
    """The runtime as it was when the job was accepted. Later changes of it do not touch this job."""
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
    """How long the training ran before its latest suspension, for spec.activeDeadlineSeconds."""
    completion_time: str | None = None
    """When the job succeeded or failed (RFC 3339, UTC)."""
