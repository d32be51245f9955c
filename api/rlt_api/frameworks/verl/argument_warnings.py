"""Warnings about verl's arguments in framework.command: what may fail, and contradictions with the spec."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import printable
from rlt_api.frameworks.arguments import Argument, Program
from rlt_api.frameworks.command.devices import COMMAND, DEVICES, NODES, count_devices, describe_groups, read_verl_number
from rlt_api.frameworks.command.problem import format_problem
from rlt_api.frameworks.verl.arguments import list_problems
from rlt_api.frameworks.verl.version import find_version, is_certain
from rlt_api.spec.job_spec import RLTrainingJobSpec

SHARED = ("strategy", "fsdp_config.strategy", "fsdp_config.fsdp_size")
"""Settings below actor_rollout_ref.actor and .ref whose workers are the same."""


def warn_arguments(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about the arguments of verl."""
    version = find_version(spec)
    for problem in list_problems(program, spec):
        if not is_certain(problem, version):
            yield format_problem(problem, program)
    yield from _warn_unequal_shards(program)
    if not program.separate:
        yield from _warn_idle_devices(program, spec)
    yield from _warn_contradictions(program, spec)


def _format_warning(argument: Argument, message: str) -> str:
    """Return the warning with the argument first. `printable` masks a value that may be a secret."""
    return f"{COMMAND}[{argument.index}]: {printable(f'{argument.prefix}{argument.key}={argument.value}')}: {message}"


def _warn_unequal_shards(program: Program) -> Iterator[str]:
    """The actor and the reference model are in the same workers."""
    for name in SHARED:
        actor = f"actor_rollout_ref.actor.{name}"
        ref = f"actor_rollout_ref.ref.{name}"
        if {actor, ref} <= program.values.keys() and program.values[actor] != program.values[ref]:
            value = program.values[actor]
            yield _format_warning(
                program.given[ref], f"{actor} is {value}, and the same workers have both models; use {value}"
            )


def _warn_idle_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    total = count_devices(spec.cluster.workers)
    separate = program.values.get("actor_rollout_ref.rollout.nnodes")
    if nodes and devices and not separate and nodes * devices < total:
        yield (
            f"{COMMAND}: {NODES}={nodes}, {DEVICES}={devices}: {total - nodes * devices} of the {total} accelerators "
            f"are not used ({describe_groups(spec.cluster.workers)})"
        )


def _warn_contradictions(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    values = program.values
    given = program.given
    logger = values.get("trainer.logger")
    if isinstance(logger, str) and "console" not in logger:
        yield _format_warning(
            given["trainer.logger"], "without console, the status of the job has no progress and no metrics"
        )
    if values.get("trainer.resume_mode") == "disable" and spec.failure_policy.max_restarts > 0:
        restarts = f"spec.failurePolicy.maxRestarts is {spec.failure_policy.max_restarts}"
        yield _format_warning(
            given["trainer.resume_mode"], f"{restarts}, and each attempt starts from step 0; use auto"
        )
    steps = values.get("trainer.total_training_steps")
    if isinstance(steps, int) and spec.framework.total_steps not in (None, steps):
        yield _format_warning(
            given["trainer.total_training_steps"], f"spec.framework.totalSteps is {spec.framework.total_steps}"
        )
    cpus = values.get("ray_kwargs.ray_init.num_cpus")
    if cpus is not None:
        yield _format_warning(
            given["ray_kwargs.ray_init.num_cpus"], "Ray already runs; use spec.cluster.workers[].numCpus"
        )
