"""Weights from safetensors files: every rank reads its shards, and no rank holds the full model."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel

from rlt_trainer.policy.weight_files import ConvertedFiles, Region, SafetensorsFiles, Weights, set_conversions

Initialize = Callable[[str, torch.Size], Tensor | None]
"""Returns the full tensor of a weight that is not in the files (adapter, value head), by name and shape; else None."""


class FullModel:
    """A full model in this process, loaded by transformers: for files that must be converted."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._weights: dict[str, Tensor] = model.state_dict()

    def names(self) -> set[str]:
        """Names of the model's weights."""
        return set(self._weights)

    def read(self, name: str, region: Region) -> Tensor:
        """Read a region of a weight."""
        return self._weights[name][region]


def load_weights(
    model: PreTrainedModel,
    folder: str,
    *,
    initialize: Initialize,
    base_name: Callable[[str], str],
    load_full_model: Callable[[], PreTrainedModel],
) -> None:
    """Load the weights in `folder` into the sharded, uninitialized `model`.

    base_name: maps a weight's name to its name without adapters.
    If weights are missing or are not in safetensors files, every rank calls load_full_model, with a warning.
    """
    targets: dict[str, Tensor] = dict(model.named_parameters())
    persistent = model.state_dict().keys()
    targets |= {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    weights: Weights = ConvertedFiles(SafetensorsFiles(folder), model, [base_name(name) for name in persistent])
    not_in_files = [name for name in targets if base_name(name) not in weights.names()]
    initialized = {
        name: tensor for name in not_in_files if (tensor := initialize(name, targets[name].shape)) is not None
    }
    wanted = {name: base_name(name) for name in targets.keys() - initialized.keys()}
    if missing := sorted(set(wanted.values()) - weights.names()):
        warnings.warn(
            f"{folder} has no safetensors files with all weights of {type(model).__name__} "
            f"({missing[0]} and {len(missing) - 1} more are missing): every rank loads the full model once.",
            stacklevel=2,
        )
        full = load_full_model()
        set_conversions(model, full._weight_conversions)  # type: ignore[arg-type]
        weights = FullModel(full)
    with torch.no_grad():
        for name, target in targets.items():
            region = local_region(target)
            local = target.to_local() if isinstance(target, DTensor) else target
            if local.numel() == 0:  # more ranks than experts
                continue
            local.copy_(initialized[name][region] if name in initialized else weights.read(wanted[name], region))


def local_region(tensor: Tensor) -> Region:
    """Return the region of the full tensor that this rank holds."""
    if not isinstance(tensor, DTensor):
        return tuple(slice(0, size) for size in tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def initialize_weight(name: str, shape: torch.Size, seed: int, initializer_range: float) -> Tensor | None:
    """Return the initial full weight of an adapter or a value head; None for other weights.

    It depends on neither the rank nor the number of ranks. As in peft and transformers: lora_A is uniform with bound
    1 / sqrt(inputs), lora_B is zero (the adapter has no effect at first); the value head is normal, its bias zero.
    DoRA's magnitudes follow from the weights (lora.initialize_magnitudes).
    """
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    match name.rpartition("lora_")[2]:  # the full name if it does not contain "lora_"
        case "A.default.weight":
            return (torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(shape[-1])
        case "B.default.weight" | "magnitude_vector.default.weight" | "score.bias":
            return torch.zeros(shape)
        case "score.weight":
            return torch.randn(shape, generator=generator) * initializer_range
    return None
