"""The script that runs the program of a job outside of Kubernetes, under `supervise` of rlt_pod."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise

from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import NODES, STEP
from rlt_api.spec.training_config import CONFIG_DIRECTORY, PROGRAMS_PATH
from rlt_core import names
from rlt_core.children.preflight_file import build_expected, has_preflight
from rlt_core.children.program import build_command
from rlt_core.entrypoint import build_run_command_arguments
from rlt_core.job import Job
from rlt_core.targets.programs import DECODER, SUPERVISED
from rlt_pod.preflight.expected import EXPECTED_FILE, Expected

ENCODED_PROGRAMS = f"{PROGRAMS_PATH}.base85"
"""The archive of programs as text, beside the script."""
FIRST_STEP_SECONDS = 7200
"""Time until the first step of the builtin trainer, as spec.failurePolicy.progressDeadlineSeconds documents."""


def build_program(job: Job, spec: RLTrainingJobSpec, *, any_port: bool, programs: str) -> str:
    """Build the script. Its command is in a file, because `ray job submit` does not quote arguments.

    Its arguments are further options of supervise. A step of framework.prepare runs once: a file beside the script
    records that it has succeeded. With preflight.only, the steps do not run. The nodes share the storage, so that one
    of them downloads. `programs` is the path to which the archive is decoded.
    """
    steps = []
    for step in [] if spec.preflight.only else spec.framework.prepare:
        record = f"{CONFIG_DIRECTORY}/prepared-{step.name}"
        given = [word for word in step.command if step.name != STEP or not word.startswith(NODES)]
        words = [programs if word == PROGRAMS_PATH else word for word in given]
        steps += [f"if [ ! -e {record} ]; then", f"  {shlex.join(words)}", f"  touch {record}", "fi"]
    options, command = _build_arguments(job, spec, any_port)
    words = [f'exec python3 {shlex.quote(programs)} supervise "$@"', *_build_options(job, spec), "--", *options, "--"]
    program = [shlex.quote(programs if word == PROGRAMS_PATH else word) for word in command]
    lines = [
        "#!/bin/bash",
        "set -e",
        "# The programs of rlt: preflight, attempts, logs and diagnosis.",
        f"python3 -c '{DECODER}' \\",
        f'  < {ENCODED_PROGRAMS} > "{programs}.$$"',
        f'mv "{programs}.$$" {programs}',
        *steps,
        " \\\n  ".join([*_join_options(words), *program]),
        "",
    ]
    return "\n".join(lines)


def list_programs(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    """The programs of rlt that the script starts."""
    commands = [build_command(job, spec), *(step.command for step in spec.framework.prepare)]
    started = [name for command in commands for word, name in pairwise(command) if word == PROGRAMS_PATH]
    return [*SUPERVISED, *(["preflight"] if has_preflight(spec) else []), *started]


def build_target_expected(job: Job, spec: RLTrainingJobSpec) -> Expected:
    """What the preflight expects: the first worker is the head, no Service has its name, and all share the storage."""
    expected = build_expected(job, spec)
    head = replace(expected.head, shared_memory=0)  # a worker's is checked
    return replace(expected, head=head, head_service="", shared_storage=True)


def _build_options(job: Job, spec: RLTrainingJobSpec) -> list[str]:
    policy = spec.failure_policy
    options = ["--run-directory", names.run_directory(job.name, uid=job.uid, spec=spec)]
    if has_preflight(spec):
        options += ["--preflight", f"{CONFIG_DIRECTORY}/{EXPECTED_FILE}"]
    if spec.preflight.only:
        options.append("--preflight-only")
    if policy.max_restarts:
        options += ["--restarts", str(policy.max_restarts)]
    given = 0 if spec.observability.debugger != "none" else policy.progress_deadline_seconds
    if given is not None:
        options += ["--progress-deadline", str(given)]
    elif get_framework(spec).reports_progress:
        options += ["--first-step-deadline", str(FIRST_STEP_SECONDS)]
    total = spec.training.total_steps or spec.framework.total_steps
    if total is not None:
        options += ["--total-steps", str(total)]
    return [*options, "--grace", str(spec.cluster.termination_grace_period_seconds)]


def _build_arguments(job: Job, spec: RLTrainingJobSpec, any_port: bool) -> tuple[list[str], list[str]]:
    """The options of run-command, and the command."""
    port = ["--port", "0"] if any_port else []
    if get_framework(spec).reports_progress:
        return ["--no-progress"], [*build_command(job, spec), *port]
    arguments = build_run_command_arguments(job, spec)
    end = arguments.index("--")
    return [*port, *arguments[:end]], arguments[end + 1 :]


def _join_options(words: list[str]) -> list[str]:
    """Lines of a command: each option with its value."""
    lines: list[str] = []
    for word in words:
        if not lines or word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return lines
