"""The command of the program that trains, for every framework."""

from __future__ import annotations

from rlt_api.frameworks.openrlhf import settings as openrlhf
from rlt_api.frameworks.roll import settings as roll
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.verl import settings as verl
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, CONFIG_FILE
from rlt_core import names
from rlt_core.job import Job

BUILDERS = {"verl": verl.build_arguments, "openrlhf": openrlhf.build_arguments, "roll": roll.build_arguments}
"""Framework -> function that builds its command line."""


def build_command(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    """Build the command of the program that trains."""
    if spec.framework.type == "builtin":
        return ["rlt-trainer", "run", "--config", f"{CONFIG_DIRECTORY}/{CONFIG_FILE}"]
    build = BUILDERS.get(spec.framework.type)
    return build(spec, build_run(job, spec)) if build else spec.framework.command or []


def build_run(job: Job, spec: RLTrainingJobSpec) -> Run:
    """Build what the settings of a framework need besides the spec."""
    saved = job.status.checkpoint
    has_checkpoint = saved is not None and saved.latest_step is not None
    directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    return Run(job.name, job.namespace, directory, has_checkpoint)


def find_working_directory(spec: RLTrainingJobSpec) -> str | None:
    """Find the working directory of the program. None for Ray's."""
    return roll.get_directory(spec) if spec.framework.type == "roll" else spec.framework.working_directory
