"""The files that the arguments of a known program name: folders of models, and files with prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.known_programs import find_program
from rlt_api.spec import RLTrainingJobSpec

MODELS = {
    "verl": ("actor_rollout_ref.model.path", "critic.model.path", "reward_model.model.path"),
    "openrlhf": ("pretrain", "critic_pretrain", "reward_pretrain"),
}
"""Program -> the arguments with a model: a folder, or a name on the hub."""
PROMPTS = {"verl": ("data.train_files", "data.val_files"), "openrlhf": ("prompt_data",)}
"""Program -> the arguments with prompts: a file, or a list of files in brackets or between commas."""


def list_argument_models(spec: RLTrainingJobSpec) -> list[str]:
    """Return the folders of models, without names on the hub."""
    return list(_list_paths(spec, MODELS))


def list_argument_prompts(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files with prompts."""
    return list(_list_paths(spec, PROMPTS))


def _list_paths(spec: RLTrainingJobSpec, keys: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Absolute paths. A script may create the files before it starts the program, so that those in it are left out."""
    program = find_program(spec.framework.command or []) if spec.framework.type == "command" else None
    if program is None or program.in_script:
        return
    for key in keys[program.name]:
        for path in re.split(r"[\[\],'\" ]+", str(program.values.get(key, ""))):
            if path.startswith("/"):
                yield path
