"""The command of framework.type: command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rlt_api.finding import Finding, printable, use
from rlt_api.spec import RLTrainingJobSpec


def validate_command_words(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.command is a list of the program and its arguments. It runs without a shell, so a whole command line in
    one item would be the name of the program."""
    command = spec.framework.command
    if not command or len(command) > 1 or " " not in command[0].strip():
        return
    try:
        words = shlex.split(command[0])
    except ValueError:  # an open quote
        words = command[0].split()
    plain = not any(each in command[0] for each in ("&&", "||", "|", ";", "$", ">", "<", "`"))
    meant = words if plain else ["bash", "-c", command[0]]
    yield Finding(
        "spec.framework.command",
        printable(command[0]),
        "is a command line in one item, and the command runs without a shell",
        f"write one item for each word: {printable(str(words))}" if plain else "use three items: bash, -c and the line",
        "command",
        edits=use("spec.framework.command", [*meant]),
    )


RULES = (validate_command_words,)
