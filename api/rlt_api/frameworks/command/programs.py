"""The rules and warnings about the arguments of a known program in a command."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_command_arguments(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The devices that the arguments of a known program request must exist, for example verl's trainer.nnodes times
    trainer.n_gpus_per_node. verl's arguments must not contain what every version ends with an error for, or the version
    in the image's tag: batches that the devices do not divide, keys that the config does not contain. They must fit
    into the memory, if the model's name contains its size."""
    program = find_program(spec.framework.command or [])
    if program:
        yield from get_record(program).validate(program, spec)


def warn_command_arguments(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about the arguments of a known program."""
    program = find_program(spec.framework.command or [])
    if program:
        yield from get_record(program).warn(program, spec)


RULES = (validate_command_arguments,)
