"""The model in Hugging Face format: at the end of another framework's job, and from one checkpoint of any job."""

from __future__ import annotations

from rlt_api.frameworks.framework_type import Export
from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec


def build_export(spec: RLTrainingJobSpec, run: Run, *, on_a_worker: bool = True) -> Export | None:
    """Build the export of a job. None if no checkpoint is saved. `on_a_worker`: in its own Ray job, else without
    Ray."""
    return get_framework(spec).export_at_the_end(spec, run, on_a_worker)


def build_checkpoint_export(spec: RLTrainingJobSpec, run: Run, step: int) -> Export | None:
    """Build the export of the checkpoint at `step`, for a pod outside of the Ray cluster. None for framework command.

    The command is empty if the framework itself writes models in the Hugging Face format: OpenRLHF at the end of the
    training, ROLL with FSDP2 in each checkpoint.
    """
    return get_framework(spec).export_checkpoint(spec, run, step)
