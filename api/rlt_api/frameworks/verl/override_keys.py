"""Overrides of a job with framework verl whose key or size verl ends with an error for."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, printable, remove, use
from rlt_api.frameworks.arguments import Argument, Program, parse_overrides
from rlt_api.frameworks.command.problem import Problem
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.verl.keys import describe_key
from rlt_api.frameworks.verl.lengths import list_length_problems
from rlt_api.frameworks.verl.parallel import read_engine
from rlt_api.frameworks.verl.rules import OVERRIDES, validate_verl_fields
from rlt_api.frameworks.verl.settings import is_old, list_settings, parse_command
from rlt_api.frameworks.verl.sizes import BATCH, MINI, list_size_problems
from rlt_api.frameworks.verl.version import find_version, is_certain
from rlt_api.rules.unsupported import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_verl_override_keys(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.overrides of verl 0.9 contain keys of its config for the engine (model_engine), or a + in front of the
    key, and sizes that the devices divide."""
    if spec.model is None or spec.data is None:
        return
    arguments = parse_overrides(spec.framework.overrides)
    if not is_old(spec.framework):
        engine = read_engine(Program("verl", arguments).values)
        own = {key.lstrip("+") for key in list_settings(spec, Run("", "", ""))}
        for argument in arguments:
            message = None if argument.key in own else describe_key(argument, engine)
            if message:
                reason, _, fix = message.partition("; ")
                yield _build_finding(argument, reason, fix or "remove it")
    if not arguments or next(validate_verl_fields(spec), None):
        return
    program = parse_command(spec)
    given = {argument.key: argument for argument in arguments}
    for problem in (*list_size_problems(program), *list_length_problems(program)):
        if problem.key in given and problem.key not in (BATCH, MINI) and is_certain(problem, find_version(spec)):
            yield _build_size_finding(given[problem.key], problem)


def _build_finding(argument: Argument, message: str, fix: str) -> Finding:
    field = f"{OVERRIDES}[{argument.index}]"
    value = printable(f"{argument.prefix}{argument.key}={argument.value}")
    meant = fix.removeprefix("did you mean ").rstrip("?") if fix.startswith("did you mean ") else ""
    edits = use(field, f"{argument.prefix}{meant}={argument.value}") if meant else remove(field)
    return Finding(field, value, message, fix, rule="framework-overrides", involved=(TYPE,), edits=edits)


def _build_size_finding(argument: Argument, problem: Problem) -> Finding:
    field = f"{OVERRIDES}[{argument.index}]"
    value = f"{argument.key}={argument.value}"
    edits = use(field, *(f"{argument.prefix}{argument.key}={each}" for each in problem.values))
    fix = problem.fix or "use another size"
    return Finding(
        field, printable(value), problem.message, fix, rule="framework-overrides", involved=(TYPE,), edits=edits
    )


RULES = (validate_verl_override_keys,)
