"""The spec of an RLTrainingJob. Its blocks are in rlt_api.blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.cluster import Cluster
from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import EvaluateOnly, Evaluation
from rlt_api.blocks.framework import Framework
from rlt_api.blocks.model import Model
from rlt_api.blocks.network import Network
from rlt_api.blocks.operations import FailurePolicy, Observability, Preflight, Security
from rlt_api.blocks.publish import Publication
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.scheduling import Scheduling
from rlt_api.blocks.storage import Storage
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel, KeyedBy, ObjectName, Positive, cel
from rlt_api.spec.immutability import immutability_rules

OPERATOR = "rlt.dev/operator"
"""The value of spec.managedBy for this operator, the same as no value."""

Seconds = Annotated[int, Field(ge=0, le=2**31 - 1)]


class RuntimeReference(ApiModel):
    """A reference to an RLRuntime."""

    name: ObjectName
    """Name of an RLRuntime."""


class JobBlocks(ApiModel):
    """The fields that a job and the defaults of a runtime have in common."""

    model: Model | None = None
    """The model to train. Required for framework builtin."""
    data: Data | None = None
    """The prompts. Required for framework builtin."""
    rewards: Annotated[list[Reward], Field(max_length=16)] = []
    """Scores of the responses. Their weighted sum is the reward. Default: the rule of the data preset."""
    algorithm: Algorithm = Algorithm()
    """Advantage estimation and policy loss."""
    training: Training = Training()
    """The optimizer, its batches and the parallelism."""
    evaluation: Annotated[list[Evaluation], Field(max_length=16), KeyedBy("name")] = []
    """Suites on which the policy is scored beside the training. The first one selects the checkpoint of
    checkpoint.keepBest. Default: none."""
    rollout: Rollout = Rollout()
    """Generation of responses."""
    cluster: Cluster = Cluster()
    """The Ray cluster."""
    network: Network = Network()
    """Requirements on the fabric, and how pods attach to it."""
    scheduling: Scheduling = Scheduling()
    """Queues, schedulers, priorities and topology."""
    storage: Storage = Storage()
    """Volumes that all pods share."""
    checkpoint: Checkpoint = Checkpoint()
    """When checkpoints are saved and loaded."""
    preflight: Preflight = Preflight()
    """Preflight checks on the job's nodes before the training."""
    failure_policy: FailurePolicy = FailurePolicy()
    """Restarts after a failure of the training."""
    observability: Observability = Observability()
    """Records in addition to the status and the metrics that every job has."""
    security: Security = Security()
    """Users and privileges of the pods."""
    active_deadline_seconds: Positive | None = None
    """Maximum run time of all attempts together, in seconds. The program then gets SIGTERM, may save a checkpoint, and
    the job fails. An attempt also ends if Ray has accepted the program and does not start it in this time. Default:
    none."""
    pending_deadline_seconds: Positive | None = None
    """Maximum time until the training of an attempt starts, in seconds: with the queue, the start of the Ray cluster,
    the preflight checks and the submission to Ray. The job then fails. Default: none."""
    ttl_seconds_after_finished: Seconds | None = None
    """Time after the end of the job until it is deleted, in seconds. Files in the storage are kept. Default: the job is
    kept."""


def evaluation_rules() -> Iterator[tuple[str, str]]:
    """Yield the CEL expression and the message of each rule for the suites of a job that trains (`model.cel`)."""
    trains = "has(self.evaluateOnly) || !has(self.evaluation)"
    before = "(has(suite.beforeTrain) && suite.beforeTrain)"
    gain = "has(suite.promoteIf) && has(suite.promoteIf.gainAbove)"
    for rule, message in (
        (f"has(suite.every) || {before}", "each suite must have every, beforeTrain: true, or both: else it never runs"),
        ("!has(suite.promoteIf) || has(suite.every)", "promoteIf needs every: it is about the last step"),
        (f"!({gain}) || {before}", "promoteIf.gainAbove needs beforeTrain: true"),
    ):
        yield f"{trains} || self.evaluation.all(suite, {rule})", message


class RLTrainingJobSpec(JobBlocks):
    """The desired training and its resources. All fields are immutable, except suspend, rolloutReplicas, the
    deadlines and ttlSecondsAfterFinished."""

    model_config = cel(
        (
            "!has(self.data) || !has(self.data.maxPromptLength) || !has(self.data.maxResponseLength) "
            "|| !has(self.rollout) || !has(self.rollout.maxModelLen) "
            "|| self.data.maxPromptLength + self.data.maxResponseLength <= self.rollout.maxModelLen",
            "rollout.maxModelLen must not be less than data.maxPromptLength + data.maxResponseLength",
        ),
        (
            "!has(self.rolloutReplicas) || !has(self.cluster) || !has(self.cluster.workers) "
            "|| self.cluster.workers.exists(group, has(group.minReplicas) && has(group.maxReplicas) "
            "&& group.minReplicas <= self.rolloutReplicas && self.rolloutReplicas <= group.maxReplicas)",
            "rolloutReplicas must be from minReplicas to maxReplicas of a worker group",
        ),
        *evaluation_rules(),
        *immutability_rules(),
    )

    runtime_ref: RuntimeReference | None = None
    """The RLRuntime with the values of fields that the job does not give. The job keeps them from its acceptance on:
    status.resolvedSpec. Default: the default of the namespace (label rlt.dev/default-runtime) or the cluster, if there
    is one."""
    suspend: bool = False
    """Whether the job is suspended. true deletes the Ray cluster and keeps the checkpoints. false resumes from the
    latest checkpoint."""
    rollout_replicas: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of pods of the group that only generates (rollout.workerGroup), from its minReplicas to its maxReplicas.
    It can change while the job runs: a new pod serves from the next weight sync on, and a removed one ends no attempt.
    Default: the replicas of the group."""
    managed_by: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9/_.-]+$", max_length=63)] | None = (
        None
    )
    """The controller that runs the job, such as kueue.x-k8s.io/multikueue. The operator ignores jobs of other
    controllers. Default: this operator, rlt.dev/operator."""
    evaluate_only: EvaluateOnly | None = None
    """Evaluate models on the suites of spec.evaluation, without train workers. algorithm, checkpoint and training have
    no effect, except for training.seed. {} evaluates spec.model. framework.type builtin alone. Default: the job
    trains."""
    publish: Annotated[list[Publication], Field(max_length=4)] = []
    """Where the exported model is published, with a model card, at the end of the job. If suites have promoteIf, the
    model must pass all of them. The condition Published has the result, and the job succeeds also if a publication
    fails. framework.type builtin alone. Default: nowhere."""
    framework: Framework = Framework()
    """The program that runs on the Ray cluster. Default: rlt's trainer."""
