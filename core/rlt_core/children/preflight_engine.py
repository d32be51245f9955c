"""The engine for the preflight check `engine`: its arguments, from the program's. Pure."""

from __future__ import annotations

from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.frameworks.preflight import reject_engine
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.preflight_roll import build_roll_engine
from rlt_pod.preflight.expected import Engine, NotPossible


def build_engine(command: list[str], spec: RLTrainingJobSpec) -> Engine | NotPossible | None:
    """Build the engine of a command, or the reason why it is not known. None: preflight.command replaces the check."""
    program = find_program(command)
    build = get_record(program).build_engine if program else None
    if program and build:
        engine = build(program)
    elif spec.framework.type == "roll":
        found = build_roll_engine(spec)
        engine = reject_engine(found) if isinstance(found, str) else found
    elif spec.preflight.command:
        return None
    else:
        engine = reject_engine("The program is neither verl nor OpenRLHF.")
    if isinstance(engine, NotPossible):
        return engine
    largest = max((each.accelerator.count for each in spec.cluster.workers if each.accelerator), default=1)
    if engine.tensor_parallel_size > largest:
        size = engine.tensor_parallel_size
        return reject_engine(f"Its tensor parallel size {size} is larger than the {largest} accelerators of a pod.")
    return engine
