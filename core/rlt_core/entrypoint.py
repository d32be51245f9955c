"""The line that starts a job's program on the head: rlt's own trainer, or the user's command and who follows it."""

from __future__ import annotations

import shlex

from rlt_api.blocks.framework import Framework
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_DIRECTORY, CONFIG_FILE
from rlt_core.children.config_map import RUN_COMMAND
from rlt_core.job import Job


def build_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """The line that Ray's shell runs on the head: one program with its arguments."""
    if spec.framework.type == "builtin":
        return f"exec rlt-trainer run --config {CONFIG_DIRECTORY}/{CONFIG_FILE}"
    program = f"{CONFIG_DIRECTORY}/{RUN_COMMAND}"
    return shlex.join(["exec", "python3", program, *build_run_command_arguments(job, spec.framework)])


def build_preflight_entrypoint() -> str:
    """The line that checks the job's nodes before the training."""
    return f"exec rlt-trainer preflight --config {CONFIG_DIRECTORY}/{CONFIG_FILE}"


def build_run_command_arguments(job: Job, framework: Framework) -> list[str]:
    """Arguments of the program that follows the user's command, which is the last of them."""
    options = ["--job", job.name, "--namespace", job.namespace]
    if framework.total_steps is not None:
        options += ["--total-steps", str(framework.total_steps)]
    if framework.working_directory is not None:
        options += ["--working-directory", framework.working_directory]
    return [*options, "--", *(framework.command or [])]
