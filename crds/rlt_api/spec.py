"""What a user asks for: the spec of an RLTrainingJob. Its blocks are in rlt_api.blocks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.cluster import Cluster
from rlt_api.blocks.data import Data
from rlt_api.blocks.framework import Framework
from rlt_api.blocks.model import Model
from rlt_api.blocks.network import Network
from rlt_api.blocks.operations import FailurePolicy, Observability, Preflight, Security
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.scheduling import Scheduling
from rlt_api.blocks.storage import Storage
from rlt_api.blocks.training import Training
from rlt_api.immutability import immutability_rules
from rlt_api.model import ApiModel, ObjectName, Positive, cel

OPERATOR = "rlt.dev/operator"
"""The value of spec.managedBy that means this operator, as if nothing were given."""

Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]


class RuntimeReference(ApiModel):
    """The platform team's part of the job."""

    name: ObjectName
    """Name of an RLRuntime."""


class JobBlocks(ApiModel):
    """What a job and a runtime's defaults have in common."""

    model: Model | None = None
    """The model to train. Required for the builtin framework."""
    data: Data | None = None
    """The prompts. Required for the builtin framework."""
    rewards: Annotated[list[Reward], Field(max_length=16)] = []
    """What scores responses; their weighted sum is the reward. Default: the data preset's own rule."""
    algorithm: Algorithm = Algorithm()
    """How rewards become gradients."""
    training: Training = Training()
    """The optimizer and its batches."""
    rollout: Rollout = Rollout()
    """How responses are generated."""
    cluster: Cluster = Cluster()
    """The Ray cluster."""
    network: Network = Network()
    """What the fabric must be, and how pods are attached to it."""
    scheduling: Scheduling = Scheduling()
    """Queues, schedulers, priorities, topology."""
    storage: Storage = Storage()
    """Volumes that all pods share."""
    checkpoint: Checkpoint = Checkpoint()
    """Saving and resuming."""
    preflight: Preflight = Preflight()
    """Checks on the job's own nodes before the training starts."""
    failure_policy: FailurePolicy = FailurePolicy()
    """What happens when the training fails."""
    observability: Observability = Observability()
    """What is recorded beyond the status and the metrics that every job has."""
    security: Security = Security()
    """Users and privileges of the pods."""
    active_deadline_seconds: Positive | None = None
    """The job fails when it has run so long, all attempts together. Default: no bound."""
    pending_deadline_seconds: Positive | None = None
    """The job fails when its cluster is not ready after so long. Default: it waits."""
    ttl_seconds_after_finished: Seconds | None = None
    """The job is deleted so long after its end. What lies in the storage stays. Default: it is kept."""


class RLTrainingJobSpec(JobBlocks):
    """What to train, and on what. Everything but suspend and the times is fixed once the job exists."""

    model_config = cel(
        (
            "has(self.runtimeRef) "
            "|| has(self.framework) && has(self.framework.type) && self.framework.type != 'builtin' "
            "|| has(self.model) && has(self.data) && has(self.training) "
            "&& (has(self.training.totalSteps) || has(self.training.totalEpochs))",
            "framework builtin needs model, data and training.totalSteps or totalEpochs, here or by runtimeRef",
        ),
        (
            "has(self.runtimeRef) || has(self.cluster) && has(self.cluster.image)",
            "cluster.image is needed, here or by runtimeRef",
        ),
        (
            "!has(self.rollout) || !has(self.rollout.responsesPerPrompt) || self.rollout.responsesPerPrompt > 1 "
            "|| has(self.runtimeRef) "
            "|| has(self.algorithm) && has(self.algorithm.advEstimator) && self.algorithm.advEstimator != 'grpo' "
            "|| has(self.framework) && has(self.framework.type) && self.framework.type != 'builtin'",
            "grpo compares the responses to a prompt: rollout.responsesPerPrompt must be 2 or more",
        ),
        (
            "!has(self.data) || !has(self.data.maxPromptLength) || !has(self.data.maxResponseLength) "
            "|| !has(self.rollout) || !has(self.rollout.maxModelLen) "
            "|| self.data.maxPromptLength + self.data.maxResponseLength <= self.rollout.maxModelLen",
            "rollout.maxModelLen must hold data.maxPromptLength + data.maxResponseLength",
        ),
        (
            "!has(self.cluster) || !has(self.cluster.workers) || self.cluster.workers.size() < 2 "
            "|| has(self.framework) && has(self.framework.type) && self.framework.type != 'builtin' "
            "|| self.cluster.workers.size() == 2 && (has(self.runtimeRef) "
            "|| has(self.rollout) && has(self.rollout.mode) && self.rollout.mode == 'separate')",
            "cluster.workers: framework builtin takes one group, and two with rollout.mode separate",
        ),
        *immutability_rules(),
    )

    runtime_ref: RuntimeReference | None = None
    """The platform team's RLRuntime, which gives what is not given here. The job keeps the copy it started with."""
    suspend: bool = False
    """true releases the cluster and keeps the checkpoints; false again continues from the latest one."""
    managed_by: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9/_.-]+$", max_length=63)] | None = (
        None
    )
    """The controller that runs the job, such as kueue.x-k8s.io/multikueue. Default: this operator, rlt.dev/operator. It
    leaves jobs of others alone."""
    framework: Framework = Framework()
    """What runs on the cluster. Default: rlt's own trainer."""
