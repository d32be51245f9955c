"""What the arguments of a known program name: folders of models, files with prompts, and models on the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.frameworks.known_programs import find_program
from rlt_api.spec.job_spec import RLTrainingJobSpec

MODELS = {
    "verl": (
        *("actor_rollout_ref.model.path", "critic.model.path"),
        *("reward.reward_model.model_path", "reward_model.model.path"),
    ),
    "openrlhf": (
        *("actor_model_name_or_path", "critic_model_name_or_path", "reward_model_name_or_path"),
        *("pretrain", "critic_pretrain", "reward_pretrain"),
    ),
}
"""Program -> the arguments with a model: a folder, or a name on the hub. The last are from earlier versions."""
PROMPTS = {
    "verl": ("data.train_files", "data.val_files"),
    "openrlhf": ("data_prompt_dataset", "eval_dataset", "prompt_data"),
}
"""Program -> the arguments with prompts: a file, or a list of files in brackets or between commas."""
OTHER_HUBS = ("use_ms",)
"""OpenRLHF's options that select another hub."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""The name of a model on the hub, with its owner."""


def list_argument_models(spec: RLTrainingJobSpec) -> list[str]:
    """Return the folders of models, without names on the hub."""
    return list(_list_paths(spec, MODELS))


def list_argument_prompts(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files with prompts."""
    return list(_list_paths(spec, PROMPTS))


def list_argument_names(spec: RLTrainingJobSpec) -> list[str]:
    """Return the names of models on the Hugging Face hub."""
    program = find_program(spec.framework.command or []) if spec.framework.type == "command" else None
    if program is None or any(program.values.get(name) is True for name in OTHER_HUBS):
        return []
    values = [program.values.get(key) for key in MODELS[program.name]]
    return [value for value in values if isinstance(value, str) and NAME.fullmatch(value)]


def _list_paths(spec: RLTrainingJobSpec, keys: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Absolute paths. A script may create the files before it starts the program, so that those in it are left out."""
    program = find_program(spec.framework.command or []) if spec.framework.type == "command" else None
    if program is None or program.in_script:
        return
    for key in keys[program.name]:
        for path in re.split(r"[\[\],'\" ]+", str(program.values.get(key, ""))):
            if path.startswith("/"):
                yield path
