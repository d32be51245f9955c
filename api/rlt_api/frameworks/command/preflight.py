"""Level full of the preflight checks for the command line of a known program. Pure."""

from __future__ import annotations

from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.frameworks.preflight import reject_engine, reject_trial
from rlt_api.frameworks.roll.script import find_roll_script
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.preflight.expected import Engine, NotPossible, Trial


def build_engine(spec: RLTrainingJobSpec, command: list[str]) -> Engine | NotPossible | None:
    """Build the engine of a command, or the reason why it is not known. None: preflight.command replaces the check."""
    program = find_program(command)
    build = get_record(program).build_engine if program else None
    if program and build:
        return build(program)
    return None if spec.preflight.command else reject_engine("The engine of this program is not known.")


def build_trial(spec: RLTrainingJobSpec, command: list[str], directory: str) -> Trial | NotPossible:
    """Build the trial of a command in `directory`, or the reason why there is none, with what to do."""
    working_directory = spec.framework.working_directory
    if spec.preflight.command:
        return Trial(spec.preflight.command, None, directory, working_directory, prints_steps=False)
    if find_roll_script(command):
        return reject_trial("ROLL's config is in the image or on a volume, so that its batch is unknown.")
    program = find_program(command)
    shorten = get_record(program).shorten if program else None
    if program is None or shorten is None:
        return reject_trial("The program is not a known one, so that its arguments for one step are unknown.")
    if program.in_script:
        return reject_trial("The arguments of the program are part of a script.")
    shortened = shorten(program, directory)
    if isinstance(shortened, NotPossible):
        return shortened
    first, second = shortened
    resume = [*command, *second] if second is not None else None
    return Trial([*command, *first], resume, directory, working_directory)
