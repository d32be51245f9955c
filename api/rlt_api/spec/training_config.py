"""The trainer's config from the operator (a ConfigMap), and the trainer's report (`/progress`, last log line)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import EvaluateOnly, Evaluation
from rlt_api.blocks.model import Model
from rlt_api.blocks.operations import Observability
from rlt_api.blocks.publish import Publication
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel, Message, Positive, Sentence, Word
from rlt_api.status.job_status import ProgressMetrics, Revision

CONFIG_DIRECTORY = "/etc/rlt"
"""Mount path of the ConfigMap in the pods."""
PROGRAMS_FILE = "rlt_pod.pyz"
PROGRAMS_PATH = f"{CONFIG_DIRECTORY}/{PROGRAMS_FILE}"
"""The programs that run in the pods, as one zipapp: `python3 rlt_pod.pyz PROGRAM` (rlt_pod/__main__.py)."""
CONFIG_FILE = "training.json"
"""Key of the ConfigMap with a TrainingConfig."""
FUNCTIONS_DIRECTORY = "/etc/rlt-functions"
"""Folder of the ConfigMaps with user-defined functions in the pods, each in a subfolder with its name."""
TRAIN_RESOURCE = "rlt-train"
"""Custom Ray resource of pods that train, in rollout.mode separate: 1 in each pod."""
ROLLOUT_RESOURCE = "rlt-rollout"
"""Custom Ray resource of pods that only generate, in rollout.mode separate: 1 in each pod."""
PRESET_REWARD = {
    "arithmetic": "exact",
    "bandit": "exact",
    "calculator": "gsm8k",
    "digits": "characters",
    "gsm8k": "gsm8k",
    "math": "math",
}
"""Data preset -> default reward rule."""


CONFIG_VERSION = 1
"""Version of TrainingConfig's format. A change follows docs/decisions/0013-the-resolved-spec-is-kept.md."""


class ResolvedTraining(Training):
    """spec.training with all values resolved."""

    total_steps: Annotated[int, Field(ge=0)]
    """0: the trainer computes it from totalEpochs."""
    ppo_mini_batch_size: Positive


class RunBucket(ApiModel):
    """The bucket of a run without a shared volume (spec.storage.bucket). Each pod then has its own run directory."""

    url: str
    """Prefix of the run's objects, such as s3://bucket/prefix/runs/NAME. They have the names of a run directory."""
    endpoint: str | None = None
    """URL of the server. Default: Amazon's S3."""


class TrainingConfig(ApiModel):
    """The complete configuration of the trainer, with all defaults resolved. `dump_config` writes it."""

    version: int = CONFIG_VERSION
    """Version of the format. A trainer rejects a config of another version."""
    job: str
    """Name of the RLTrainingJob."""
    namespace: str
    """Namespace of the RLTrainingJob."""
    run_directory: str
    """Output folder of the run, as a path in all pods. A suspension does not change it."""
    bucket: RunBucket | None = None
    """Default: the run directory is on a volume."""
    workers: int
    """Number of worker pods that train. Each has devicesPerWorker train workers."""
    devices_per_worker: int
    """Accelerators of one worker pod. 0: one train worker on the CPU."""
    cpus_per_worker: int
    """Number of threads of one worker pod, at least 1."""
    rollout_workers: int = 0
    """Number of worker pods that only generate. 0: the pods that train also generate."""
    min_rollout_workers: int | None = None
    """Number of them with which the run starts. Default: all."""
    max_rollout_workers: int | None = None
    """Maximum number of them while the run continues. Default: rolloutWorkers."""
    rollout_devices_per_worker: int = 0
    """Accelerators of one pod that only generates."""
    rollout_cpus_per_worker: int = 1
    """Number of threads of one pod that only generates."""
    model: Model
    data: Data
    rewards: list[Reward]
    """Empty only if an environment gives the reward."""
    algorithm: Algorithm
    training: ResolvedTraining
    evaluation: list[Evaluation] = []
    evaluate_only: EvaluateOnly | None = None
    """Default: the job trains."""
    rollout: Rollout
    checkpoint: Checkpoint
    observability: Observability = Observability()
    publish: list[Publication] | None = None
    """Default: the model is not published."""
    image: str | None = None
    """The image of the pods, for the model card."""


class _Versioned(BaseModel):
    version: int = CONFIG_VERSION


class UnsupportedVersionError(ValueError):
    """The config has a version of the format that this package does not read."""


def validate_version(text: bytes) -> None:
    """Validate the version of a config, before its fields. Raises UnsupportedVersionError, or ValidationError."""
    version = _Versioned.model_validate_json(text).version
    if version != CONFIG_VERSION:
        raise UnsupportedVersionError(
            f"version: {version}: this trainer reads version {CONFIG_VERSION} of the config. Use a trainer image of "
            "the minor version of the operator that accepted the job, or of the one after it."
        )


def dump_config(config: TrainingConfig) -> str:
    """Write the config as JSON, without unset fields (None)."""
    return config.model_dump_json(by_alias=True, exclude_none=True, indent=2)


Steps = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A number of steps, as in a status."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""A duration of at most 30 years."""


class BrokenMetricRule(ApiModel):
    """A rule over the metrics that is broken at the latest step (rlt_pod.report.metric_rules)."""

    rule: Word
    """Its field in spec.observability.metricRules."""
    evidence: Sentence
    """The metric and its value at the first step beyond the threshold."""
    pods: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Number of pods that only generate."""
    proposed: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The number that generationBound and trainingBound propose instead of `pods`."""


class GateResult(ApiModel):
    """Whether a suite passes its promoteIf."""

    suite: Word
    """Its name."""
    passed: bool | None = None
    """None: the figures are missing."""
    evidence: Sentence
    """The figures and what they are compared with, or why they are missing."""


class PublicationResult(ApiModel):
    """Whether the exported model is in a place of spec.publish."""

    url: Word
    """URL of the repository, or of the prefix in a bucket."""
    revision: Revision | None = None
    """The commit, or the digest of the files. None: the publication has failed."""
    error: Sentence | None = None
    """Why, and what to do."""


class PhaseSeconds(ApiModel):
    """Seconds since the training began, by what the accelerators did (rlt_pod.report.phase_seconds)."""

    generate: Seconds = 0.0
    update: Seconds = 0.0
    sync: Seconds = 0.0
    evaluate: Seconds = 0.0
    idle: Seconds = 0.0
    uncommitted: Seconds = 0.0
    """Seconds of these since the latest complete checkpoint."""


class SandboxReport(ApiModel):
    """Claims of sandbox pods in the latest step."""

    failed: Steps = 0
    """Pods that were lost, and claims without a pod."""
    claim_seconds_p50: Seconds | None = None
    """Median time until a claim had its pod. None without claims."""
    claim_seconds_p99: Seconds | None = None
    """The same: 99 % of the claims."""


class ProgressReport(ApiModel):
    """The progress report of the driver. The operator does not trust it: all fields have bounds."""

    stage: Word
    """preparing, warmup, training, evaluating (evaluateOnly), exporting or finished."""
    step: Steps
    """Number of completed steps, or of evaluated models with evaluateOnly."""
    total_steps: Steps
    """Total number of steps, or of models."""
    seconds_per_step: Seconds | None = None
    """Mean duration of the latest steps, for the ETA."""
    longest_step_seconds: Seconds | None = None
    """Duration of the longest step since the start of the program, with its validation and its checkpoint."""
    tokens_per_second: Annotated[float, Field(ge=0, le=1e15)] | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    metrics: ProgressMetrics = ProgressMetrics()
    """Metrics of the latest step."""
    reward: Annotated[float, Field(ge=-1e300, le=1e300)] | None = None
    """Mean of metrics.reward over the latest ten steps: the reward of the run."""
    sandboxes: SandboxReport | None = None
    """Claims of sandbox pods in the latest step. None without rollout.multiTurn.sandbox."""
    phases: PhaseSeconds | None = None
    """How the accelerators spent the time of the completed steps, as a mean over all of them."""
    broken_rules: Annotated[list[BrokenMetricRule], Field(max_length=64)] = []
    """The rules of spec.observability.metricRules that are broken."""
    latest_checkpoint_step: Steps | None = None
    """Step of the latest complete checkpoint."""
    checkpoint_directory: Sentence | None = None
    """Folder of the checkpoints in the pods. Default: checkpoints in the run directory."""
    checkpoint_error: Message | None = None
    """Why the latest checkpoint could not be saved, such as a full volume. The training continues without it."""
    exported_path: Sentence | None = None
    """Path of the exported model in Hugging Face format."""
    gates: Annotated[list[GateResult], Field(max_length=16)] = []
    """The results of the suites with promoteIf, for the exported model."""
    published: Annotated[list[PublicationResult], Field(max_length=4)] = []
    """The results of spec.publish. Empty before the publication, and if a gate has not passed."""
    updated: Word
    """Time of the report (RFC 3339, UTC)."""
