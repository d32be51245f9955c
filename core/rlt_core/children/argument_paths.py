"""What the arguments of a known program name: folders of models, files with prompts, and models on the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.spec.job_spec import RLTrainingJobSpec

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""The name of a model on the hub, with its owner."""


def list_argument_models(spec: RLTrainingJobSpec) -> list[str]:
    """Return the folders of models, without names on the hub."""
    program = find_program(spec.framework.command or [])
    return list(_list_paths(program, get_record(program).models)) if program else []


def list_argument_prompts(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files with prompts."""
    program = find_program(spec.framework.command or [])
    return list(_list_paths(program, get_record(program).prompts)) if program else []


def list_argument_names(spec: RLTrainingJobSpec) -> list[str]:
    """Return the names of models on the Hugging Face hub."""
    program = find_program(spec.framework.command or [])
    if program is None or any(program.values.get(name) is True for name in get_record(program).other_hubs):
        return []
    values = [program.values.get(key) for key in get_record(program).models]
    return [value for value in values if isinstance(value, str) and NAME.fullmatch(value)]


def _list_paths(program: Program, keys: Sequence[str]) -> Iterator[str]:
    """Absolute paths. A script may create the files before it starts the program, so that those in it are left out."""
    if program.in_script:
        return
    for key in keys:
        for path in re.split(r"[\[\],'\" ]+", str(program.values.get(key, ""))):
            if path.startswith("/"):
                yield path
