"""spec.checkpoint: when checkpoints are saved and loaded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.model import ApiModel, ObjectName, PathOrUrl, cel


class Checkpoint(ApiModel):
    """When checkpoints are saved and loaded."""

    model_config = cel(
        (
            "!has(self.resumeFromPath) || !has(self.resume) || self.resume == 'path'",
            "resumeFromPath is only for resume path",
        ),
        (
            "!has(self.resumeFromJob) || !has(self.resume) || self.resume == 'job'",
            "resumeFromJob is only for resume job",
        ),
    )

    save_freq: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Number of steps between checkpoints. The last step is also saved. -1 and 0 save only the model, at
    the end."""
    resume: Literal["auto", "never", "path", "job"] = "auto"
    """auto resumes from the latest complete checkpoint of the job, such as after a suspension. path resumes from
    resumeFromPath, job from the latest checkpoint of resumeFromJob. never starts from step 0. verl's resume_mode."""
    resume_from_path: PathOrUrl | None = None
    """The folder of one checkpoint for resume path. Its name is step-N, of verl global_step_N. The trainer of rlt also
    reads a checkpoint in a bucket, s3://BUCKET/PREFIX/step-N, which the job downloads first, with storage.endpoint and
    storage.secretName."""
    resume_from_job: ObjectName | None = None
    """Name of an RLTrainingJob in the same namespace for resume job. Both jobs have the same framework and the same
    storage.claimName. This job is accepted when that one has ended, with the path of its latest checkpoint in
    status.resolvedSpec."""
    max_to_keep: Annotated[int, Field(ge=0, le=2**31 - 1)] = 3
    """Maximum number of checkpoints; older ones are deleted: verl's max_actor_ckpt_to_keep. 0: none is deleted.
    Default: 3, as OpenRLHF's ckpt.max_num."""
    keep_best: bool = False
    """Whether the checkpoint with the highest score on the first suite of spec.evaluation is also kept. Only steps that
    are both saved (saveFreq) and evaluated (every) have a score."""
    asynchronous: bool = False
    """Whether training continues while a checkpoint is written, from a copy in CPU memory."""
