"""The trainer's config from the operator (a ConfigMap), and the trainer's report (`/progress`, last log line)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import to_json

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model
from rlt_api.blocks.operations import Observability
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel, Positive, Since
from rlt_api.status.job_status import ProgressMetrics

CONFIG_DIRECTORY = "/etc/rlt"
"""Mount path of the ConfigMap in the pods."""
CONFIG_FILE = "training.json"
"""Key of the ConfigMap with a TrainingConfig."""
FUNCTIONS_DIRECTORY = "/etc/rlt-functions"
"""Folder of the ConfigMaps with user-defined functions in the pods, each in a subfolder with its name."""
TRAIN_RESOURCE, ROLLOUT_RESOURCE = "rlt-train", "rlt-rollout"
"""Custom Ray resources of pods that train and of pods that only generate, in rollout.mode separate: 1 in each pod."""
PRESET_REWARD = {
    "arithmetic": "exact",
    "bandit": "exact",
    "calculator": "gsm8k",
    "digits": "characters",
    "gsm8k": "gsm8k",
    "math": "math",
}
"""Data preset -> default reward rule."""


CONFIG_VERSION = 2
"""Version of TrainingConfig's format. A release that adds a field increments it once, and marks the field with
`Since`. The trainer reads this version and the one before."""


class ResolvedTraining(Training):
    """spec.training with all values resolved."""

    total_steps: Annotated[int, Field(ge=0)]
    """0: the trainer computes it from totalEpochs."""
    ppo_mini_batch_size: Positive


class Preflight(ApiModel):
    """The values that the preflight checks of earlier trainers expect. Operators before the mounted checks write it."""

    head_shared_memory: int
    """Size of /dev/shm in the head, in bytes."""
    shared_memory: int
    """Size of /dev/shm in pods that train, in bytes."""
    rollout_shared_memory: int = 0
    """Size of /dev/shm in pods that only generate, in bytes."""
    shared_storage: bool
    """Whether all pods share the run directory."""
    require_rdma: bool
    """Whether NCCL must use RDMA instead of TCP."""


class TrainingConfig(ApiModel):
    """The complete configuration of the trainer, with all defaults resolved. `dump_config` writes it."""

    version: Annotated[int, Field(ge=1)] = 1
    """The first version of the format that has all fields of this config. Trainers of that version can read it."""
    job: str
    """Name of the RLTrainingJob."""
    namespace: str
    """Namespace of the RLTrainingJob."""
    run_directory: str
    """Output folder of the run, as a path in all pods. A suspension does not change it."""
    workers: int
    """Number of worker pods that train. Each has devicesPerWorker train workers."""
    devices_per_worker: int
    """Accelerators of one worker pod. 0: one train worker on the CPU."""
    cpus_per_worker: int
    """Number of threads of one worker pod, at least 1."""
    rollout_workers: int = 0
    """Number of worker pods that only generate. 0: the pods that train also generate."""
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
    rollout: Rollout
    checkpoint: Checkpoint
    observability: Observability = Observability()
    preflight: Preflight | None = None
    """Ignored."""


class _Versioned(BaseModel):
    version: int = 1


class UnsupportedVersionError(ValueError):
    """The config has a version of the format that this package does not read."""


def validate_version(text: bytes) -> None:
    """Validate the version of a config, before its fields. Raises UnsupportedVersionError, or ValidationError."""
    version = _Versioned.model_validate_json(text).version
    if not CONFIG_VERSION - 1 <= version <= CONFIG_VERSION:
        read = " and ".join(str(each) for each in (CONFIG_VERSION - 1, CONFIG_VERSION) if each)
        raise UnsupportedVersionError(
            f"version: {version}: this trainer reads version {read} of the config. Use a trainer image of the minor "
            "version of the operator that accepted the job, or of the one after it."
        )


def dump_config(config: TrainingConfig) -> str:
    """Write the config as JSON that the oldest possible trainer reads, which rejects fields that it does not know.

    A field that a later version than 1 added is omitted if it has its default. The version is the highest of the other
    fields. Null is omitted if it is the default.
    """
    fields, version = _dump(config)
    fields.pop("version")
    return to_json({**({"version": version} if version > 1 else {}), **fields}, indent=2).decode()


def _dump(block: ApiModel) -> tuple[dict[str, Any], int]:
    """The JSON of a block and the version that has all of its fields."""
    found: dict[str, Any] = {}
    versions = [1]
    for name, field in type(block).model_fields.items():
        value, default = getattr(block, name), field.get_default(call_default_factory=True)
        since = next((each.version for each in field.metadata if isinstance(each, Since)), 1)
        if value == default and (value is None or since > 1):
            continue
        found[field.alias or name], inner = _dump_value(value)
        versions += [since, inner]
    return found, max(versions)


def _dump_value(value: Any) -> tuple[Any, int]:
    if isinstance(value, ApiModel):
        return _dump(value)
    if isinstance(value, list):
        pairs = [_dump_value(each) for each in value]
        return [each for each, _ in pairs], max((version for _, version in pairs), default=1)
    return value, 1


class BrokenMetricRule(ApiModel):
    """A rule over the metrics that is broken at the latest step (rlt_pod.report.metric_rules)."""

    rule: str
    """Its field in spec.observability.metricRules."""
    evidence: str
    """The metric and its value at the first step beyond the threshold."""


class ProgressReport(ApiModel):
    """The progress report of the driver."""

    stage: str
    """preparing, warmup, training, exporting or finished."""
    step: int
    """Number of completed steps."""
    total_steps: int
    """Total number of steps."""
    seconds_per_step: float | None = None
    """Mean duration of the latest steps, for the ETA."""
    longest_step_seconds: float | None = None
    """Duration of the longest step since the start of the program, with its validation and its checkpoint."""
    tokens_per_second: float | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    metrics: ProgressMetrics = ProgressMetrics()
    """Metrics of the latest step."""
    broken_rules: Annotated[list[BrokenMetricRule], Field(max_length=64)] = []
    """The rules of spec.observability.metricRules that are broken."""
    latest_checkpoint_step: int | None = None
    """Step of the latest complete checkpoint."""
    checkpoint_directory: str | None = None
    """Folder of the checkpoints in the pods. Default: checkpoints in the run directory."""
    checkpoint_error: str | None = None
    """Why the latest checkpoint could not be saved, such as a full volume. The training continues without it."""
    exported_path: str | None = None
    """Path of the exported model in Hugging Face format."""
    updated: str
    """Time of the report (RFC 3339, UTC)."""
