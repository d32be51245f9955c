"""The command of the program that trains, for every framework."""

from __future__ import annotations

from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job


def build_command(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    """Build the command of the program that trains."""
    return get_framework(spec).build_command(spec, build_run(job, spec))


def build_run(job: Job, spec: RLTrainingJobSpec) -> Run:
    """Build what the settings of a framework need besides the spec."""
    saved = job.status.checkpoint
    has_checkpoint = saved is not None and saved.latest_step is not None
    directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    bucket = names.run_url(job.name, uid=job.uid, spec=spec)
    return Run(job.name, job.namespace, directory, has_checkpoint, bucket)


def find_working_directory(spec: RLTrainingJobSpec) -> str | None:
    """Find the working directory of the program. None for Ray's."""
    return get_framework(spec).find_working_directory(spec)
