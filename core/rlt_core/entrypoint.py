"""The entrypoint of the Ray job on the head: the trainer of rlt, or the program that runs the user's command."""

from __future__ import annotations

import json
import shlex

from rlt_api.blocks.framework import Framework, PrepareStep
from rlt_api.blocks.metric_rules import build_limits
from rlt_api.frameworks.export import build_export
from rlt_api.frameworks.known_programs import find_folder
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY, PROGRAMS_PATH
from rlt_core import names
from rlt_core.children.attempt_directory import PROGRAM_LOG, build_log_options, step_log
from rlt_core.children.program import build_command, build_run, find_working_directory
from rlt_core.job import Job, get_attempt_number
from rlt_pod.preflight.expected import EXPECTED_FILE
from rlt_pod.report.metric_rules import DEFAULTS


def build_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the entrypoint of the training: a shell command that runs one program."""
    program = ["exec", "python3", PROGRAMS_PATH, "run-command", *build_log_options(job, spec, PROGRAM_LOG)]
    if not get_framework(spec).reports_progress:
        return shlex.join([*program, *build_run_command_arguments(job, spec)])
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    command = [*build_command(job, spec), *_build_lease_options(job, spec), *_build_clear_options(job, spec)]
    return shlex.join([*program, "--no-progress", "--run-directory", run_directory, "--", *command])


def _build_lease_options(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    """Build the options with which the program takes the lease of its run directory: the number of the attempt, and the
    ID of the Ray job. Only restartPolicy InPlace needs it on a volume, and has storage that the driver and rank 0
    share. A bucket can be written by pods of a node that the cluster has lost."""
    current = job.status.current_attempt
    if current is None or (spec.failure_policy.restart_policy != "InPlace" and spec.storage.bucket is None):
        return []
    holder = names.submission_id(job.name, ray_cluster_uid=current.ray_cluster_uid, execution=current.execution)
    return ["--attempt", str(get_attempt_number(job.status)), "--holder", holder]


def _build_clear_options(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    """Build the option with which the program waits until no process of an earlier execution is left: the number of
    the RayCluster's pods. Empty for the first execution."""
    current = job.status.current_attempt
    if current is None or current.execution == 1:
        return []
    return ["--clear", str(1 + sum(group.replicas for group in spec.cluster.workers))]


def build_preflight_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the entrypoint of the preflight checks. They use the devices, which an earlier execution must have
    released."""
    checks = f"exec python3 {PROGRAMS_PATH} preflight {CONFIG_DIRECTORY}/{EXPECTED_FILE}"
    if options := _build_clear_options(job, spec):
        return f"python3 {PROGRAMS_PATH} clear {options[1]} && {checks}"
    return checks


def build_runtime_env(framework: Framework) -> dict[str, object]:
    """Build Ray's runtime_env of the program; empty if Ray adds nothing to the image."""
    given = framework.runtime_env
    if given is None:
        return {}
    fields = {"working_dir": given.working_dir, "py_modules": given.py_modules, "pip": given.pip}
    return {name: value for name, value in fields.items() if value}


def build_step_entrypoint(job: Job, spec: RLTrainingJobSpec, step: PrepareStep) -> str:
    """Build the entrypoint of a framework.prepare step. Its output is kept beside the program's."""
    program = ["exec", "python3", PROGRAMS_PATH, "run-command", *build_log_options(job, spec, step_log(step.name))]
    return shlex.join([*program, "--no-progress", "--", *step.command])


def build_stacks_entrypoint(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the entrypoint of the Ray job that writes the stacks of all processes."""
    return shlex.join(["exec", "python3", PROGRAMS_PATH, "dump-stacks", build_stacks_directory(job, spec)])


def build_stacks_directory(job: Job, spec: RLTrainingJobSpec) -> str:
    """Build the path of the folder with these stacks in the pods."""
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    return f"{names.attempt_directory(run_directory, attempt=get_attempt_number(job.status))}/stacks"


def build_run_command_arguments(job: Job, spec: RLTrainingJobSpec, *, on_a_worker: bool = True) -> list[str]:
    """Build the arguments of run-command. The command comes last. `on_a_worker`: where the model is exported."""
    limits = build_limits(spec.observability.metric_rules)
    command = build_command(job, spec)
    options = ["--job", job.name, "--namespace", job.namespace]
    total = get_framework(spec).count_steps(spec)
    if total is not None:
        options += ["--total-steps", str(total)]
    if directory := find_working_directory(spec):
        options += ["--working-directory", directory]
    options += ["--run-directory", names.run_directory(job.name, uid=job.uid, spec=spec)]
    if rollouts := find_folder(command, lambda record: record.rollouts):
        options += ["--verl-rollouts", rollouts]
    if limits != DEFAULTS:
        options += ["--metric-rules", json.dumps(limits)]
    if directory := find_checkpoint_directory(job, spec):
        options += ["--checkpoints", directory]
    if export := build_export(spec, build_run(job, spec), on_a_worker=on_a_worker):
        options += ["--export-directory", export.directory]
        options += ["--export", json.dumps(export.command)] if export.command else []
    return [*options, "--", *command]


def find_checkpoint_directory(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """Find the folder of the checkpoints. None if it is unknown, as in most commands."""
    return get_framework(spec).find_checkpoints(spec, build_run(job, spec))
