"""What the operator hands the trainer (a ConfigMap), and what the trainer answers (`/progress`, its last log line)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model
from rlt_api.blocks.operations import Observability
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel, Positive
from rlt_api.status import ProgressMetrics

CONFIG_DIRECTORY = "/etc/rlt"
"""Where the pods see the ConfigMap."""
CONFIG_FILE = "training.json"
"""Its key, a TrainingConfig."""
FUNCTIONS_DIRECTORY = "/etc/rlt-functions"
"""Where the pods see the ConfigMaps of rewards[].function.configMap, each in a folder of its name."""
TRAIN_RESOURCE, ROLLOUT_RESOURCE = "rlt-train", "rlt-rollout"
"""What Ray knows pods that train and pods that only generate by, where they are two kinds: each pod offers 1."""
PRESET_REWARD = {"arithmetic": "exact", "bandit": "exact", "digits": "characters", "gsm8k": "gsm8k", "math": "math"}
"""Data preset -> the rule that responses are scored with when a job names none."""


class ResolvedTraining(Training):
    """spec.training with nothing left open."""

    total_steps: Annotated[int, Field(ge=0)]
    """0: totalEpochs passes over the data, which the trainer counts."""
    ppo_mini_batch_size: Positive


class Preflight(ApiModel):
    """What the checks before the training expect of the pods."""

    head_shared_memory: int
    """Size of /dev/shm in the head, in bytes."""
    shared_memory: int
    """The same in pods that train."""
    rollout_shared_memory: int = 0
    """The same in pods that only generate."""
    shared_storage: bool
    """Whether all pods see the same run directory."""
    require_rdma: bool
    """Whether NCCL must not talk over TCP."""


class TrainingConfig(ApiModel):
    """Everything the trainer needs to know, with all defaults filled in."""

    job: str
    """Name of the RLTrainingJob."""
    namespace: str
    """Its namespace."""
    run_directory: str
    """Where this run writes, as all pods see it. It is the same after a suspension."""
    workers: int
    """Number of worker pods that train; each holds devicesPerWorker ranks."""
    devices_per_worker: int
    """Accelerators of one worker. 0: one rank on the CPU."""
    cpus_per_worker: int
    """Threads that one worker may use, at least 1."""
    rollout_workers: int = 0
    """Number of worker pods that only generate. 0: those that train generate as well."""
    rollout_devices_per_worker: int = 0
    """Accelerators of one of them."""
    rollout_cpus_per_worker: int = 1
    """Threads that one of them may use."""
    model: Model
    data: Data
    rewards: list[Reward]
    """Never empty."""
    algorithm: Algorithm
    training: ResolvedTraining
    rollout: Rollout
    checkpoint: Checkpoint
    observability: Observability = Observability()
    preflight: Preflight | None = None
    """None: no checks before the training."""


class ProgressReport(ApiModel):
    """What the driver says of itself."""

    stage: str
    """preparing, warmup, training, exporting or finished."""
    step: int
    """Steps completed."""
    total_steps: int
    """Steps in all."""
    seconds_per_step: float | None = None
    """Mean duration of the latest steps, for the estimate of the time left."""
    tokens_per_second: float | None = None
    """Prompt and response tokens of the latest step per second, over all workers."""
    metrics: ProgressMetrics = ProgressMetrics()
    """The latest step's numbers."""
    latest_checkpoint_step: int | None = None
    """The step of the latest complete checkpoint."""
    exported_path: str | None = None
    """The finished model in Hugging Face's format."""
    updated: str
    """When this was said (RFC 3339, UTC)."""
