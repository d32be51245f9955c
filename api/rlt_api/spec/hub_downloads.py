"""The steps of framework.prepare that download model and data of the hub, a default of jobs with a volume for them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.blocks.data import Data, HubDataset
from rlt_api.blocks.evaluation import EvaluationData
from rlt_api.blocks.framework import MAX_STEPS, PrepareStep
from rlt_api.blocks.model import Model
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.preset_data import PRESET_HUB
from rlt_api.spec.training_config import PROGRAMS_PATH

MODEL_STEP = "download-model"
DATA_STEP = "download-data"
DOWNLOAD = ["python3", PROGRAMS_PATH, "download"]
DATA_OPTION = "--dataset"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""A name with its owner. A folder is an absolute path."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
DATA_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def build_download_steps(spec: RLTrainingJobSpec) -> list[PrepareStep]:
    """Build the steps for spec.model.path, and for the hub's data in spec.data and spec.evaluation.

    None for files of the pods, without a volume that keeps the files, with HF_HUB_OFFLINE, for a job of checks alone,
    which runs no step, and if the job has such a step or the maximum number of steps.
    """
    if spec.preflight.only or not _keeps_downloads(spec):
        return []
    given = spec.framework.prepare
    commands = {MODEL_STEP: _download_model(spec), DATA_STEP: _download_data(spec)}
    steps = [PrepareStep(name=name, command=command) for name, command in commands.items() if command]
    missing = [step for step in steps if not any(_does_the_same(step, other) for other in given)]
    return missing[: MAX_STEPS - len(given)]


def _download_model(spec: RLTrainingJobSpec) -> list[str]:
    model = spec.model
    if model is None or model.path is None or not is_on_hub(spec):
        return []
    return [*DOWNLOAD, model.path, *_build_revision(model)]


def _download_data(spec: RLTrainingJobSpec) -> list[str]:
    if _is_offline(spec, DATA_OFFLINE):
        return []
    names = dict.fromkeys(_format(each) for each in _list_data_sets(spec))
    return [*DOWNLOAD, *(word for name in names for word in (DATA_OPTION, name))] if names else []


def _list_data_sets(spec: RLTrainingJobSpec) -> Iterator[HubDataset]:
    """Yield the data sets of the hub that the job reads. A suite without data has the preset of spec.data."""
    blocks: list[Data | EvaluationData | None] = [spec.data, *(suite.data for suite in spec.evaluation)]
    for data in blocks:
        if data and data.hub:
            yield data.hub
        elif data and data.preset and data.path is None and (data_set := PRESET_HUB.get(data.preset)):
            yield data_set


def _format(data_set: HubDataset) -> str:
    """NAME[@REVISION][:CONFIG], as rlt_pod/download/download.py reads it."""
    revision = f"@{data_set.revision}" if data_set.revision else ""
    return f"{data_set.name}{revision}{f':{data_set.config}' if data_set.config else ''}"


def _does_the_same(step: PrepareStep, other: PrepareStep) -> bool:
    """Whether the job has its own step with this name, or a download of a model or of data."""
    is_download = other.command[: len(DOWNLOAD)] == DOWNLOAD
    return step.name == other.name or (is_download and (DATA_OPTION in step.command) == (DATA_OPTION in other.command))


def is_on_hub(spec: RLTrainingJobSpec) -> bool:
    """Whether spec.model.path names a model of the hub that the job may download."""
    path = spec.model.path if spec.model else None
    return bool(path and HUB_NAME.fullmatch(path)) and not _is_offline(spec, OFFLINE)


def _build_revision(model: Model) -> list[str]:
    return ["--revision", model.revision] if model.revision else []


def _keeps_downloads(spec: RLTrainingJobSpec) -> bool:
    """Whether HF_HOME is on a PVC that the job writes to (hf_home in rlt_core/names.py)."""
    storage = spec.storage
    cache = storage.model_cache
    places = [storage.mount_path] if storage.outlives_pods else []
    places += [cache.mount_path] if cache and not cache.read_only else []
    if storage.hf_home is None:
        return not cache.read_only if cache else storage.outlives_pods
    return any(f"{storage.hf_home}/".startswith(f"{place.rstrip('/')}/") for place in places)


def _is_offline(spec: RLTrainingJobSpec, variables: tuple[str, ...]) -> bool:
    return any(each.name in variables and each.value not in ("", "0") for each in spec.cluster.env)
