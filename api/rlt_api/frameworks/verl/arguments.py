"""All problems of verl's arguments in a command."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.problem import Problem, build_command_finding
from rlt_api.frameworks.verl.demand import list_demand_problems
from rlt_api.frameworks.verl.keys import list_key_problems
from rlt_api.frameworks.verl.lengths import list_length_problems
from rlt_api.frameworks.verl.places import list_place_problems
from rlt_api.frameworks.verl.sizes import list_size_problems
from rlt_api.frameworks.verl.version import find_version, is_certain
from rlt_api.spec.job_spec import RLTrainingJobSpec

RULE = "command-arguments"


def list_problems(program: Program, spec: RLTrainingJobSpec) -> Iterator[Problem]:
    """List the problems of the arguments."""
    yield from list_key_problems(program)
    yield from list_size_problems(program)
    yield from list_length_problems(program)
    yield from list_demand_problems(program, spec)
    yield from list_place_problems(program, spec)


def validate_verl_arguments(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """verl's arguments in a command must not contain what every version ends with an error for, or the version in the
    image's tag: batches that the devices do not divide, keys that the config does not contain, missing devices."""
    version = find_version(spec)
    for problem in list_problems(program, spec):
        if is_certain(problem, version):
            yield build_command_finding(problem, program, RULE)
