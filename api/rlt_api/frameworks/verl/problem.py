"""A problem of verl's settings: an error if every version that the job can run ends with it, otherwise a warning."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlt_api.findings.factors import join_or
from rlt_api.findings.finding import Finding, printable, use
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import COMMAND
from rlt_api.spec.job_spec import RLTrainingJobSpec

ALL = ""
"""verl ends with an error in all versions."""
IN_IMAGE = re.compile(r"verl[^/:@]{0,64}:[^/@]{0,32}?(\d{1,4})\.(\d{1,4})")
"""An image whose tag begins with the version of verl, such as registry.example/verl:0.9.1."""


@dataclass(frozen=True)
class Problem:
    """A setting that verl does not take, or that does not do what is meant."""

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


def find_version(spec: RLTrainingJobSpec) -> str | None:
    """Return the version of verl, such as 0.9: framework.version, or the image's tag. None if it is unknown."""
    if spec.framework.type == "verl":
        return spec.framework.version or "0.9"
    found = IN_IMAGE.search(spec.cluster.image or "")
    return f"{found[1]}.{found[2]}" if found else None


def is_certain(problem: Problem, version: str | None) -> bool:
    """Whether verl of this version ends with an error."""
    if not problem.since or version is None:
        return problem.since == ALL
    if problem.since.startswith("="):
        return version == problem.since[1:]
    return [int(part) for part in version.split(".")] >= [int(part) for part in problem.since.split(".")]


def format_problem(problem: Problem, program: Program) -> str:
    """Write the problem as a warning about the command, with the argument first."""
    text = f"{problem.message}; {problem.fix}" if problem.fix else problem.message
    argument = program.given.get(problem.key)
    if argument is None:
        return f"{COMMAND}: {problem.key}: {text}"
    return f"{COMMAND}[{argument.index}]: {printable(f'{argument.prefix}{argument.key}={argument.value}')}: {text}"


def build_command_finding(problem: Problem, program: Program, rule: str) -> Finding:
    """Build the finding of a command for a certain problem."""
    argument = program.given.get(problem.key)
    message, _, rest = problem.message.partition("; ")
    fix = problem.fix or rest or "change the command"
    if argument is None:
        return Finding(COMMAND, problem.key, message, fix, rule=rule, involved=("spec.framework.type",))
    field = f"{COMMAND}[{argument.index}]"
    value = printable(f"{argument.prefix}{argument.key}={argument.value}")
    is_own = not problem.replaced or problem.replaced == problem.key
    values = problem.values if is_own and not program.in_script else ()
    edits = use(field, *(f"{argument.prefix}{argument.key}={each}" for each in values))
    return Finding(field, value, message, fix, rule=rule, involved=("spec.framework.type",), edits=edits)
