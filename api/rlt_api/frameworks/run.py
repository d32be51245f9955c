"""What the settings of every framework need besides the spec."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group


@dataclass(frozen=True)
class Run:
    """The job and its place in the pods."""

    name: str
    """Name of the job."""
    namespace: str
    """Its namespace, the default of observability.wandb.project."""
    directory: str
    """The run directory in the pods."""
    has_checkpoint: bool = False
    """Whether the job has saved its own checkpoint."""
    bucket: str | None = None
    """URL of the run's objects, with spec.storage.bucket."""

    @property
    def checkpoints(self) -> str:
        """The folder of the checkpoints."""
        return f"{self.directory}/checkpoints"

    @property
    def model(self) -> str:
        """The folder of the model that the framework itself writes at the end."""
        return f"{self.directory}/model"


def choose_resume(checkpoint: Checkpoint, run: Run) -> str:
    """Choose the mode of checkpoint.resume for the next attempt. A job that started from resumeFromPath resumes from
    its own checkpoints, as with rlt's trainer: verl and ROLL read the path again at each start."""
    return "auto" if checkpoint.resume == "path" and run.has_checkpoint else checkpoint.resume


def count_devices(spec: RLTrainingJobSpec) -> int:
    """Count the accelerators of one pod that trains."""
    accelerator = training_group(spec).accelerator
    return accelerator.count if accelerator else 1


def count_shares(spec: RLTrainingJobSpec) -> int:
    """Count the data-parallel shares of a batch."""
    devices = training_group(spec).replicas * count_devices(spec)
    return max(1, devices // spec.training.context_parallel_size)


def compute_micro_batch_size(spec: RLTrainingJobSpec, limit: int, shares: int) -> int:
    """Compute the largest micro-batch, of at most `limit` responses, that divides the responses of one of `shares` in a
    mini-batch, as verl and DeepSpeed assert. It affects memory and speed, not the result."""
    prompts = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    share = max(1, prompts * spec.rollout.responses_per_prompt // shares)
    return max(size for size in range(1, min(limit, share) + 1) if share % size == 0)


def choose_export_folder(run: Run, step: int) -> str:
    """Return the folder of the model that a checkpoint is exported to."""
    return f"{run.directory}/exports/step-{step}"
