"""What the preflight checks look for: folders of models, files with prompts, and names on the hub. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlt_api.blocks.data import Data, HubDataset
from rlt_api.blocks.evaluation import EvaluationData
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import SCHEME, list_objects
from rlt_api.spec.preset_data import PRESET_HUB
from rlt_pod.preflight.expected import ObjectPath, Repository

OTHER_HUBS = ("VERL_USE_MODELSCOPE", "VLLM_USE_MODELSCOPE")
"""Variables that select ModelScope (verl/utils/import_utils.py, vllm/envs.py)."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""The name of a model on the hub, with its owner."""


def list_model_folders(spec: RLTrainingJobSpec) -> list[str]:
    """Return the folders with models, which every pod reads. Names on the hub are not included."""
    critic = spec.algorithm.critic
    paths = [spec.model.path if spec.model else None, critic.model_path if critic else None]
    paths += [*(reward.model for reward in spec.rewards), *_list_argument_models(spec)]
    return sorted({path for path in paths if path and path.startswith("/")})


def list_repositories(spec: RLTrainingJobSpec) -> list[Repository]:
    """Return the models and data sets on the Hugging Face hub.

    With preflight.only, the steps that may download them do not run.
    """
    if spec.preflight.only and spec.framework.prepare:
        return []
    if any(variable.name in OTHER_HUBS for variable in spec.cluster.env):
        return []
    critic = spec.algorithm.critic
    model = spec.model
    named = {
        **dict.fromkeys(_list_argument_names(spec)),
        **dict.fromkeys(reward.model for reward in spec.rewards if reward.model),
        **({critic.model_path: critic.model_revision} if critic and critic.model_path else {}),
        **({model.path: model.revision} if model and model.path else {}),
    }
    on_hub = {name: revision for name, revision in named.items() if not name.startswith(("/", SCHEME))}
    models = [Repository(name, "model", revision) for name, revision in on_hub.items()]
    found = map(_find_hub, _list_data(spec))
    sets = [Repository(hub.name, "dataset", hub.revision) for hub in found if hub]
    return [*models, *dict.fromkeys(sets)]


def list_data_files(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files and folders with prompts, which the head reads.

    With preflight.only, the steps that may create them do not run.
    """
    if spec.preflight.only and spec.framework.prepare:
        return []
    if spec.data is None:
        return _list_argument_prompts(spec)
    paths: list[str] = []
    for each in _list_data(spec):
        paths += [each.path] if each.path and each.preset in PRESET_HUB else []
        paths += each.files or []
    return list(dict.fromkeys(path for path in paths if not path.startswith(SCHEME)))


def list_object_paths(spec: RLTrainingJobSpec) -> list[ObjectPath]:
    """Return the models and data in a bucket that no step downloads: only a job of checks alone has such paths."""
    return [ObjectPath(path.field, path.url, path.kind) for path in list_objects(spec)]


def _list_data(spec: RLTrainingJobSpec) -> Iterator[Data | EvaluationData]:
    """The prompts of the training, and of suites with other ones."""
    if spec.data is not None:
        yield spec.data
    yield from (suite.data for suite in spec.evaluation if suite.data is not None)


def _find_hub(data: Data | EvaluationData) -> HubDataset | None:
    """The data set on the hub that is read."""
    return data.hub or (PRESET_HUB.get(data.preset or "") if data.path is None else None)


def _list_argument_models(spec: RLTrainingJobSpec) -> list[str]:
    """The folders of models, without names on the hub."""
    program = find_program(spec.framework.command or [])
    return list(_list_paths(program, get_record(program).models)) if program else []


def _list_argument_prompts(spec: RLTrainingJobSpec) -> list[str]:
    """The files with prompts in the arguments."""
    program = find_program(spec.framework.command or [])
    return list(_list_paths(program, get_record(program).prompts)) if program else []


def _list_argument_names(spec: RLTrainingJobSpec) -> list[str]:
    """The names of models on the Hugging Face hub in the arguments."""
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
