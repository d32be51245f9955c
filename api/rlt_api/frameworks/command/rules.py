"""The commands of spec.framework: of type command, and of the steps before the program."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rlt_api.findings.finding import Finding, keep_one, printable, use
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_command_words(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.command is a list of the program and its arguments, as are preflight.command and the commands of
    framework.prepare. It runs without a shell, so a whole command line in one item would be the name of the program."""
    yield from _validate_words("spec.framework.command", spec.framework.command or [])
    yield from _validate_words("spec.preflight.command", spec.preflight.command or [])
    for index, step in enumerate(spec.framework.prepare):
        yield from _validate_words(f"spec.framework.prepare[{index}].command", step.command)


def _validate_words(field: str, command: Sequence[str]) -> Iterator[Finding]:
    if not command or len(command) > 1 or " " not in command[0].strip():
        return
    line = command[0]
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote
        words = line.split()
    message = "is a command line in one item, and the command runs without a shell"
    fix = f"write one item for each word: {printable(str(words))}"
    if any(operator in line for operator in ("&&", "||", "|", ";", "$", ">", "<", "`")):
        words = ["bash", "-c", line]
        fix = "use three items: bash, -c and the line"
    yield Finding(field, printable(line), message, fix, rule="command", edits=use(field, [*words]))


def validate_working_directory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.workingDirectory and framework.runtimeEnv.workingDir are two working directories of one command."""
    given = spec.framework.working_directory
    uri = spec.framework.runtime_env.working_dir if spec.framework.runtime_env else None
    if given is not None and uri is not None:
        field = "spec.framework.workingDirectory"
        other = "spec.framework.runtimeEnv.workingDir"
        message = f"is given together with runtimeEnv.workingDir {printable(uri)}"
        fix = f"remove it or {other}"
        edits = keep_one(field, other)
        yield Finding(field, given, message, fix, rule="command", involved=(other,), edits=edits)


RULES = (validate_command_words, validate_working_directory)
