"""The entrypoint of the Ray job on the head: the trainer of rlt, or the program that runs the user's command."""

from __future__ import annotations

import shlex

from rlt_api.blocks.framework import Framework
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_DIRECTORY, CONFIG_FILE
from rlt_core import names
from rlt_core.children.attempt_directory import PROGRAM_LOG, build_attempt_directory
from rlt_core.children.config_map import DUMP_STACKS, PREFLIGHT, RUN_COMMAND
from rlt_core.job import Job, get_attempt_number


def build_entrypoint(job: Job, spec: RLTrainingJobSpec, *, keep_log: bool = True) -> str:
    """Build the entrypoint of the training: a shell command that runs one program.

    `keep_log`: whether the pods have mounted a version of RUN_COMMAND that keeps the output in a file.
    """
    log = build_attempt_directory(job, spec) if keep_log else None
    options = ["--log", f"{log}/{PROGRAM_LOG}"] if log else []
    program = ["exec", "python3", f"{CONFIG_DIRECTORY}/{RUN_COMMAND}", *options]
    if spec.framework.type == "command":
        return shlex.join([*program, *build_run_command_arguments(job, spec.framework)])
    trainer = ["rlt-trainer", "run", "--config", f"{CONFIG_DIRECTORY}/{CONFIG_FILE}"]
    return shlex.join([*program, "--no-progress", "--", *trainer] if log else ["exec", *trainer])


def build_preflight_entrypoint(*, mounted: bool = True) -> str:
    """Build the entrypoint of the preflight checks. `mounted`: whether the pods have mounted PREFLIGHT.

    The image of a cluster that an earlier operator created has a trainer with the checks.
    """
    if mounted:
        return f"exec python3 {CONFIG_DIRECTORY}/{PREFLIGHT}"
    return f"exec rlt-trainer preflight --config {CONFIG_DIRECTORY}/{CONFIG_FILE}"


def build_stacks_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the entrypoint of the Ray job that writes the stacks of all processes."""
    return shlex.join(["exec", "python3", f"{CONFIG_DIRECTORY}/{DUMP_STACKS}", build_stacks_directory(job, spec)])


def build_stacks_directory(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the path of the folder of these stacks in the pods."""
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    return f"{names.attempt_directory(run_directory, attempt=get_attempt_number(job.status))}/stacks"


def build_run_command_arguments(job: Job, framework: Framework) -> list[str]:
    """Build the arguments of run_command.py. The user's command comes last."""
    options = ["--job", job.name, "--namespace", job.namespace]
    if framework.total_steps is not None:
        options += ["--total-steps", str(framework.total_steps)]
    if framework.working_directory is not None:
        options += ["--working-directory", framework.working_directory]
    return [*options, "--", *(framework.command or [])]
