"""The file with what the preflight checks expect of the job's cluster (rlt_core/preflight/expected.py)."""

from __future__ import annotations

from math import ceil
from typing import Literal

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.model import quantity_value
from rlt_api.rules.model_size import model_size
from rlt_api.rules.shared_memory import size_shared_memory, size_worker_shared_memory
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_DIRECTORY, CONFIG_FILE
from rlt_core import names
from rlt_core.job import Job
from rlt_core.preflight.expected import Expected, Group

CHECKPOINT_BYTES = 12
"""Bytes of a parameter in a checkpoint: float32, with Adam's two moments."""
EXPORT_BYTES = 4
"""Bytes of a parameter in the exported model: at most float32."""


def get_level(spec: RLTrainingJobSpec) -> Literal["off", "basic", "full"]:
    """Return preflight.level. Without it, preflight.only and the deprecated preflight.enabled are basic."""
    given = spec.preflight.enabled or spec.preflight.only
    return spec.preflight.level or ("basic" if given else "off")


def has_preflight(spec: RLTrainingJobSpec) -> bool:
    """Whether the checks run before the program of the job."""
    return get_level(spec) != "off"


def build_expected(job: Job, spec: RLTrainingJobSpec) -> Expected:
    """Build the expectations. The pods are built from the same values."""
    level, head, model = get_level(spec), spec.cluster.head.resources, spec.model
    size = model_size(model) if model else None
    copies = 2 if spec.algorithm.critic else 1
    bandwidth = spec.preflight.min_bus_bandwidth
    has_trial = level == "full" and spec.framework.type == "builtin"
    config = f"{CONFIG_DIRECTORY}/{CONFIG_FILE}"
    return Expected(
        level=level,
        head=Group("headgroup", 1, 0, 0, size_shared_memory(head).size),
        workers=[_build_group(spec, group) for group in spec.cluster.workers],
        head_service=names.head_service(job.name),
        run_directory=names.run_directory(job.name, uid=job.uid, spec=spec),
        shared_storage=spec.storage.outlives_pods,
        require_rdma=spec.network.require == "rdma",
        models=list_model_folders(spec),
        data_files=list_data_files(spec),
        chat_template_of=_find_template_folder(spec),
        checkpoint_bytes=int(copies * CHECKPOINT_BYTES * size.parameters) if size else None,
        export_bytes=int(EXPORT_BYTES * size.parameters) if size else None,
        checkpoints=count_checkpoints(spec),
        min_bus_bandwidth=bandwidth * 1e9 if bandwidth is not None else None,
        trial=["rlt-trainer", "trial", "--config", config] if has_trial else None,
    )


def list_model_folders(spec: RLTrainingJobSpec) -> list[str]:
    """Return the folders with models, which every pod reads. Names on the hub are not included."""
    critic = spec.algorithm.critic
    paths = [spec.model.path if spec.model else None, critic.model_path if critic else None]
    paths += [reward.model for reward in spec.rewards]
    return sorted({path for path in paths if path and path.startswith("/")})


def list_data_files(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files and folders with prompts, which the head reads."""
    data = spec.data
    if data is None:
        return []
    published = [data.path] if data.path and data.preset in ("gsm8k", "math") else []
    return [*published, *(data.files or []), *(data.val_files or [])]


def count_checkpoints(spec: RLTrainingJobSpec) -> int:
    """Count the checkpoints on the volume at the same time, with the one that is written. 0: only the model is saved.

    At least 1 is assumed if the number of steps is not known.
    """
    checkpoint, steps = spec.checkpoint, spec.training.total_steps
    if checkpoint.save_freq < 1:
        return 0
    saved = ceil(steps / checkpoint.save_freq) if steps else 1
    kept = checkpoint.max_to_keep
    return saved if kept is None else min(saved, kept + checkpoint.keep_best + 1)


def _find_template_folder(spec: RLTrainingJobSpec) -> str | None:
    path = spec.model.path if spec.model else None
    return path if path and path.startswith("/") and spec.data and not spec.data.chat_template else None


def _build_group(spec: RLTrainingJobSpec, group: WorkerGroup) -> Group:
    assert group.resources
    accelerator = group.accelerator
    return Group(
        name=group.name,
        replicas=group.replicas,
        cpus=group.num_cpus or max(1, int(quantity_value(group.resources.cpu))),
        devices=accelerator.count if accelerator else 0,
        shared_memory=size_worker_shared_memory(spec, group).size,
        device_memory=int(quantity_value(accelerator.memory)) if accelerator and accelerator.memory else 0,
    )
