"""What the operator hands the trainer (a ConfigMap), and what the trainer answers (`/progress`, its last log line)."""

from __future__ import annotations

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel, Positive
from rlt_api.status import ProgressMetrics

CONFIG_DIRECTORY = "/etc/rlt"
"""Where the pods see the ConfigMap."""
CONFIG_FILE = "training.json"
"""Its key, a TrainingConfig."""
PRESET_REWARD = {"arithmetic": "exact", "gsm8k": "gsm8k"}
"""Data preset -> the rule that responses are scored with when a job names none."""


class ResolvedTraining(Training):
    """spec.training with nothing left open."""

    total_steps: Positive
    ppo_mini_batch_size: Positive


class TrainingConfig(ApiModel):
    """Everything the trainer needs to know, with all defaults filled in."""

    job: str
    """Name of the RLTrainingJob."""
    namespace: str
    """Its namespace."""
    run_directory: str
    """Where this run writes, as all pods see it. It is the same after a suspension."""
    workers: int
    """Number of worker pods; each holds devicesPerWorker ranks."""
    devices_per_worker: int
    """Accelerators of one worker. 0: one rank on the CPU."""
    cpus_per_worker: int
    """Threads that one worker may use, at least 1."""
    model: Model
    data: Data
    rewards: list[Reward]
    """Never empty."""
    algorithm: Algorithm
    training: ResolvedTraining
    rollout: Rollout
    checkpoint: Checkpoint


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
