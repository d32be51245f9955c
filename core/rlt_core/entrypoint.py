"""The entrypoint of the Ray job on the head: the trainer of rlt, or the program that runs the user's command."""

from __future__ import annotations

import shlex

from rlt_api.blocks.framework import Framework
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_DIRECTORY, CONFIG_FILE
from rlt_core.children.config_map import RUN_COMMAND
from rlt_core.job import Job


def build_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the entrypoint of the training: a shell command that runs one program."""
    if spec.framework.type == "builtin":
        return f"exec rlt-trainer run --config {CONFIG_DIRECTORY}/{CONFIG_FILE}"
    program = f"{CONFIG_DIRECTORY}/{RUN_COMMAND}"
    return shlex.join(["exec", "python3", program, *build_run_command_arguments(job, spec.framework)])


def build_preflight_entrypoint() -> str:
    """Build the entrypoint of the preflight checks."""
    return f"exec rlt-trainer preflight --config {CONFIG_DIRECTORY}/{CONFIG_FILE}"


def build_run_command_arguments(job: Job, framework: Framework) -> list[str]:
    """Build the arguments of run_command.py. The user's command comes last."""
    options = ["--job", job.name, "--namespace", job.namespace]
    if framework.total_steps is not None:
        options += ["--total-steps", str(framework.total_steps)]
    if framework.working_directory is not None:
        options += ["--working-directory", framework.working_directory]
    return [*options, "--", *(framework.command or [])]
