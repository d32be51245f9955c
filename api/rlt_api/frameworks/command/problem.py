"""A problem of a known program's arguments: an error if the program certainly ends with it, otherwise a warning."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.findings.factors import join_or
from rlt_api.findings.finding import Finding, printable, use
from rlt_api.frameworks.arguments import Argument, Program
from rlt_api.frameworks.command.devices import COMMAND

ALL = ""
"""The program ends with an error in all versions."""


@dataclass(frozen=True)
class Problem:
    """An argument that the program does not take, or that does not do what is meant."""

    key: str
    message: str
    values: tuple[int, ...] = ()
    """The nearest values that resolve it."""
    replaced: str = ""
    """The key that gets one of the values, if it is not `key`."""
    since: str | None = None
    """The first version that ends with an error; ALL: every version; =0.9: this one alone. None: the job may run."""

    @property
    def fix(self) -> str:
        """The fix with the values, without a semicolon. Empty if the message has it."""
        key = f"{self.replaced}=" if self.replaced and self.replaced != self.key else ""
        return f"use {key}{join_or(self.values)}" if self.values else ""


def name_argument(argument: Argument) -> str:
    """Write an argument as in the command. `printable` masks a value that may be a secret."""
    key = f"--{argument.option}" if argument.option else f"{argument.prefix}{argument.key}"
    return printable(f"{key}={argument.value}")


def format_problem(problem: Problem, program: Program) -> str:
    """Write the problem as a warning about the command, with the argument first."""
    text = f"{problem.message}; {problem.fix}" if problem.fix else problem.message
    argument = program.given.get(problem.key)
    if argument is None:
        return f"{COMMAND}: {problem.key}: {text}"
    return f"{COMMAND}[{argument.index}]: {name_argument(argument)}: {text}"


def build_command_finding(problem: Problem, program: Program, rule: str) -> Finding:
    """Build the finding of a command for a certain problem."""
    argument = program.given.get(problem.key)
    message, _, rest = problem.message.partition("; ")
    fix = problem.fix or rest or "change the command"
    if argument is None:
        return Finding(COMMAND, problem.key, message, fix, rule=rule, involved=("spec.framework.type",))
    field = f"{COMMAND}[{argument.index}]"
    value = name_argument(argument)
    is_own = not problem.replaced or problem.replaced == problem.key
    values = problem.values if is_own and not program.in_script else ()
    edits = use(field, *(f"{argument.prefix}{argument.key}={each}" for each in values))
    return Finding(field, value, message, fix, rule=rule, involved=("spec.framework.type",), edits=edits)
