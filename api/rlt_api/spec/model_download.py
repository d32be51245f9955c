"""The step of framework.prepare that downloads a model of the hub, a default of jobs with a volume for it."""

from __future__ import annotations

import re

from rlt_api.blocks.framework import PrepareStep
from rlt_api.blocks.model import Model
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import PROGRAMS_PATH

STEP = "download-model"
DOWNLOAD = ["python3", PROGRAMS_PATH, "download"]
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
"""A name with its owner. A folder is an absolute path."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def build_download_step(spec: RLTrainingJobSpec) -> PrepareStep | None:
    """Build the step for spec.model.path.

    None for a folder, without a volume that keeps the files, with HF_HUB_OFFLINE, for a job of checks alone, which
    runs no step, and if the job has such a step.
    """
    model = spec.model
    steps = spec.framework.prepare
    if model is None or model.path is None or not is_on_hub(spec):
        return None
    if spec.preflight.only or not _keeps_downloads(spec):
        return None
    if any(step.name == STEP or step.command[: len(DOWNLOAD)] == DOWNLOAD for step in steps):
        return None
    return PrepareStep(name=STEP, command=[*DOWNLOAD, model.path, *_build_revision(model)])


def is_on_hub(spec: RLTrainingJobSpec) -> bool:
    """Whether spec.model.path names a model of the hub that the job may download."""
    path = spec.model.path if spec.model else None
    return bool(path and HUB_NAME.fullmatch(path)) and not _is_offline(spec)


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


def _is_offline(spec: RLTrainingJobSpec) -> bool:
    return any(each.name in OFFLINE and each.value not in ("", "0") for each in spec.cluster.env)
