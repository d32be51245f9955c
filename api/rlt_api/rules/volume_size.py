"""What a job keeps on its volume at the same time: model files, checkpoints and the exported model."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from rlt_api.model import quantity_value
from rlt_api.rules.memory_parts import GIB, Part
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import IMAGE_SCHEME
from rlt_api.spec.objects import SCHEME, find_root

CHECKPOINT_BYTES = 12
"""Bytes of a parameter in a checkpoint: float32, with Adam's two moments."""
EXPORT_BYTES = 4
"""Bytes of a parameter in the exported model: at most float32."""
MODEL_FILE_BYTES = 2
"""Bytes of a parameter in published files: bfloat16."""


def count_checkpoints(spec: RLTrainingJobSpec) -> int:
    """Count the checkpoints on the volume at the same time, with the one that is written. 0: only the model is saved.

    At least 1 is assumed if the number of steps is not known. With storage.bucket, a pod has at most the checkpoint
    that it loads.
    """
    checkpoint = spec.checkpoint
    steps = spec.training.total_steps
    if checkpoint.save_freq < 1:
        return 0
    if spec.storage.bucket:
        return 1
    saved = ceil(steps / checkpoint.save_freq) if steps else 1
    kept = checkpoint.max_to_keep
    return min(saved, kept + checkpoint.keep_best + 1) if kept else saved


def checkpoint_bytes(spec: RLTrainingJobSpec) -> int | None:
    """Return the size of one checkpoint; None if the model's size is unknown. Adapters are not counted."""
    model = spec.model
    size = model_size(model) if model else None
    if size is None or model is None:
        return None
    copies = 0 if model.lora else 1
    copies += 1 if spec.algorithm.critic else 0
    return int(copies * CHECKPOINT_BYTES * size.parameters)


def export_bytes(spec: RLTrainingJobSpec) -> int | None:
    """Return the size of the exported model; None if the model's size is unknown."""
    model = spec.model
    size = model_size(model) if model else None
    return int(EXPORT_BYTES * size.parameters) if size else None


def list_volume_parts(spec: RLTrainingJobSpec) -> list[Part]:
    """List what the job's PVC holds: model files on it, checkpoints and the exported model. Empty if the size of the
    model is unknown."""
    size = model_size(spec.model) if spec.model else None
    one = checkpoint_bytes(spec)
    if size is None or one is None or spec.model is None:
        return []
    parts = []
    if _is_on_volume(spec):
        parts.append(Part("of model files", MODEL_FILE_BYTES * size.parameters))
    if one and (count := count_checkpoints(spec)):
        parts.append(Part(f"for {count} checkpoint{'s' * (count > 1)} of {one / GIB:.3g} GiB", count * one))
    parts.append(Part("for the exported model", EXPORT_BYTES * size.parameters))
    return parts


def _is_on_volume(spec: RLTrainingJobSpec) -> bool:
    """Whether the PVC has the files of the model: its folder, or a download."""
    storage = spec.storage
    path = (spec.model.path if spec.model else None) or ""
    folder = storage.hf_home
    if path.startswith(("/", SCHEME)):
        folder = find_root(spec) if path.startswith(SCHEME) else path
    if not path or path.startswith(IMAGE_SCHEME) or (folder is None and storage.model_cache is not None):
        return False
    return folder is None or f"{folder}/".startswith(f"{storage.mount_path.rstrip('/')}/")


def explain_small_volume(spec: RLTrainingJobSpec, size: str) -> str | None:
    """Return the sum for a volume of `size`, such as 500Gi, if it does not hold what the job keeps; None if it does."""
    parts = list_volume_parts(spec)
    needed = sum(part.bytes for part in parts)
    if needed <= quantity_value(size):
        return None
    fix = f"use {ceil(needed / GIB)}Gi or more"
    fix += ", or a smaller checkpoint.maxToKeep" if count_checkpoints(spec) > 2 else ""
    return f"does not hold {' + '.join(map(str, parts))} = {needed / GIB:.4g} GiB; {fix}"


def warn_small_volume(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A volume for the job alone that is too small for its checkpoints."""
    size = spec.storage.size
    if size and (problem := explain_small_volume(spec, size)):
        yield f"spec.storage.size: {size}: {problem}"
