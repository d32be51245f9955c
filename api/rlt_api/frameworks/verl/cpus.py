"""The CPUs of a job with framework verl, by the rule of a command."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.command.problem import Problem
from rlt_api.frameworks.verl.demand import list_cpu_problems
from rlt_api.frameworks.verl.rules import validate_verl_fields
from rlt_api.frameworks.verl.settings import parse_command
from rlt_api.frameworks.verl.version import find_version, is_certain
from rlt_api.rules.unsupported import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec

CPU = "spec.cluster.workers[0].resources.cpu"
COUNT = "spec.cluster.workers[0].accelerator.count"


def _list_problems(spec: RLTrainingJobSpec) -> Iterator[tuple[Problem, bool]]:
    if spec.model is None or spec.data is None:
        return
    if next(validate_verl_fields(spec), None):
        return
    version = find_version(spec)
    for problem in list_cpu_problems(parse_command(spec), spec):
        yield problem, is_certain(problem, version)


def validate_verl_cpus(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type verl needs three CPUs of a pod for each of its accelerators: verl 0.9 asks Ray for bundles with
    them, and waits for those that no pod has."""
    resources = spec.cluster.workers[0].resources if spec.cluster.workers else None
    for problem, certain in _list_problems(spec):
        if certain and resources:
            message, _, fix = problem.message.partition("; ")
            yield Finding(CPU, resources.cpu, message, fix, rule="verl-cpus", involved=(TYPE, COUNT))


def warn_verl_cpus(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warning about the storage units of verl's V1 trainer."""
    resources = spec.cluster.workers[0].resources if spec.cluster.workers else None
    for problem, certain in _list_problems(spec):
        if not certain and resources:
            yield f"{CPU}: {resources.cpu}: {problem.message}"


RULES = (validate_verl_cpus,)
