"""Syntax of a shell in commands that run without one: builtins, assignments, operators and expansions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from rlt_api.findings.finding import Finding, printable, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
BUILTINS = (
    *("cd", "export", "source", ".", "set", "unset", "alias", "eval", "ulimit", "trap", "pushd", "popd", "shopt"),
    *("if", "for", "while", "until", "case", "function", "declare", "local", "readonly", "umask"),
)
OPERATOR = re.compile(r"&&|\|\||\||\|&|;;?|&|<|<<|[0-9]?>>?|&>>?|[0-9]?>&[0-9]|<<<")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
EXPANSION = re.compile(
    r"\$[A-Z_][A-Z0-9_]{0,99}|\$\{[A-Z_][A-Z0-9_]{0,99}(?:[:#%/+-][^}$]{0,99})?\}|\$\([^()$]{1,99}\)|`[^`]{1,99}`"
)
"""A variable with a name in upper case, or a short command. ${name.of.key} is an interpolation of OmegaConf."""


def list_commands(spec: RLTrainingJobSpec) -> Iterator[tuple[str, list[str]]]:
    """Yield the path and the words of each command in the spec."""
    tools = spec.rollout.multi_turn.tools if spec.rollout.multi_turn else []
    commands = {
        "spec.framework.command": spec.framework.command,
        "spec.preflight.command": spec.preflight.command,
        **{
            f"spec.framework.prepare[{index}].command": step.command
            for index, step in enumerate(spec.framework.prepare)
        },
        **{
            f"spec.rollout.multiTurn.tools[{index}].mcp.command": tool.mcp.command
            for index, tool in enumerate(tools)
            if tool.mcp
        },
    }
    yield from ((field, words) for field, words in commands.items() if words)


def runs_in_shell(command: Sequence[str]) -> bool:
    """Whether a shell of the command reads one of its items (-c)."""
    shell = next((index for index, word in enumerate(command) if word.rpartition("/")[2] in SHELLS), None)
    return shell is not None and any(re.fullmatch(r"-[a-z]*c", word) for word in command[shell + 1 :])


def validate_shell_syntax(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A command runs without a shell: it has no builtins such as cd, assignments in front of the program, and operators
    such as && and >."""
    for field, command in list_commands(spec):
        if len(command) < 2 or runs_in_shell(command):
            continue
        first = command[0]
        if first in BUILTINS:
            fix = "use spec.framework.workingDirectory, or" if first == "cd" else "use"
            yield _build_finding(field, 0, command, "is part of a shell, and the command runs without one", fix)
        elif ASSIGNMENT.fullmatch(first):
            fix = "use spec.cluster.env, or"
            yield _build_finding(
                field, 0, command, "is an assignment of a shell, and the command runs without one", fix
            )
        else:
            operator = next((index for index, word in enumerate(command) if OPERATOR.fullmatch(word)), None)
            if operator is not None and command[operator] != ";":  # find -exec … ;
                message = "is an operator of a shell, and the command runs without one"
                yield _build_finding(field, operator, command, message, "use")


def _build_finding(field: str, index: int, command: Sequence[str], message: str, fix: str) -> Finding:
    line = " ".join(word if OPERATOR.fullmatch(word) else shlex.quote(word) for word in command)
    words = ["bash", "-c", line]
    fix = f"{fix} three items: bash, -c and the line"
    value = printable(command[index])
    return Finding(f"{field}[{index}]", value, message, fix, rule="command", edits=use(field, [*words]))


def warn_shell_words(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about expansions that no shell does, and about words after the script of a shell."""
    for field, command in list_commands(spec):
        if not runs_in_shell(command):
            for index, word in enumerate(command):
                if found := EXPANSION.search(word):
                    text = f"{printable(word)}: {found[0]} is not replaced, because the command runs without a shell"
                    yield f"{field}[{index}]: {text}; write the value, or use the items bash, -c and the line"
                elif word.startswith("~/"):
                    text = f"{printable(word)}: ~ is not replaced, because the command runs without a shell"
                    yield f"{field}[{index}]: {text}; write the absolute path"
            continue
        script = next(index for index, word in enumerate(command) if re.fullmatch(r"-[a-z]*c", word)) + 1
        if script < len(command) - 1 and " " not in command[script].strip():
            yield (
                f"{field}[{script}]: {printable(command[script])}: is the whole script of the shell, and the items "
                "after it are its parameters; write the command line in one item"
            )


RULES = (validate_shell_syntax,)
