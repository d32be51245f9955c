"""The program of the preflight stage training for other frameworks: one step in its own folder. Pure."""

from __future__ import annotations

from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.frameworks.preflight import reject_trial
from rlt_api.frameworks.roll.script import find_roll_script
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.preflight_roll import build_roll_trial
from rlt_core.children.program import find_working_directory
from rlt_pod.preflight.expected import NotPossible, Trial


def build_trial(command: list[str], spec: RLTrainingJobSpec, directory: str) -> Trial | NotPossible:
    """Build the trial of a command in `directory`, or the reason why there is none, with what to do."""
    working_directory = find_working_directory(spec)
    if spec.preflight.command:
        return Trial(spec.preflight.command, None, directory, working_directory, prints_steps=False)
    if spec.framework.type == "roll":
        return build_roll_trial(spec, directory)
    if find_roll_script(command):
        return reject_trial("ROLL's config is in the image or on a volume, so that its batch is unknown.")
    program = find_program(command)
    shorten = get_record(program).shorten if program else None
    if program is None or shorten is None:
        return reject_trial("The program is neither verl nor OpenRLHF.")
    if program.in_script:
        return reject_trial("The arguments of the program are part of a script.")
    if program.own_config:
        return reject_trial("The program reads its own config, so that its batch is unknown.")
    shortened = shorten(program, directory)
    if isinstance(shortened, NotPossible):
        return shortened
    first, second = shortened
    return Trial([*command, *first], [*command, *second], directory, working_directory)
