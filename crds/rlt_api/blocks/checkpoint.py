"""spec.checkpoint: saving and resuming."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.model import AbsolutePath, ApiModel, Positive, cel


class Checkpoint(ApiModel):
    """Saving and resuming."""

    model_config = cel(
        (
            "!has(self.resumeFromPath) || !has(self.resume) || self.resume == 'path'",
            "resumeFromPath is for resume path only",
        ),
    )

    save_freq: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Save after every so many steps and after the last. -1: only the model, at the end."""
    resume: Literal["auto", "never", "path"] = "auto"
    """auto continues from the job's latest complete checkpoint, after a suspension for instance; path from
    resumeFromPath: verl's resume_mode."""
    resume_from_path: AbsolutePath | None = None
    """For path: the folder of one checkpoint, ending in step-N."""
    max_to_keep: Positive | None = None
    """Older checkpoints are deleted: verl's max_actor_ckpt_to_keep. Default: none is."""
    keep_best: bool = False
    """Whether the checkpoint with the highest score of training.validation is kept as well. Steps that are both saved
    (saveFreq) and validated (testFreq) have a score."""
    asynchronous: bool = False
    """Whether training goes on while a checkpoint is written, from a copy in the CPU's memory."""
