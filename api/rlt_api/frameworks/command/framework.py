"""A user's program: framework.type command."""

from __future__ import annotations

from rlt_api.frameworks.command import programs
from rlt_api.frameworks.command.preflight import build_engine, build_trial
from rlt_api.frameworks.framework_type import FrameworkType
from rlt_api.frameworks.known_programs import find_folder, find_program, get_record
from rlt_api.frameworks.roll.warnings import warn_roll_command
from rlt_api.frameworks.run import Run
from rlt_api.rules.operations import validate_command_observability
from rlt_api.spec.job_spec import RLTrainingJobSpec


def build_command(spec: RLTrainingJobSpec, run: Run) -> list[str]:
    """Return the program and its arguments."""
    return spec.framework.command or []


def find_checkpoints(spec: RLTrainingJobSpec, run: Run) -> str | None:
    """Find the folder in the arguments of a known program."""
    command = spec.framework.command or []
    program = find_program(command)
    if program and (found := get_record(program).find_checkpoints(program)) and found.startswith("/"):
        return found
    return find_folder(command, lambda record: record.checkpoints)


COMMAND = FrameworkType(
    name="command",
    title="a command",
    build_command=build_command,
    options=("command", "workingDirectory", "totalSteps", "runtimeEnv"),
    reads_fields=False,
    rules=(*programs.RULES, validate_command_observability),
    warnings=(programs.warn_command_arguments, warn_roll_command),
    build_engine=build_engine,
    build_trial=build_trial,
    find_checkpoints=find_checkpoints,
)
