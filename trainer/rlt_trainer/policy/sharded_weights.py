"""Weights from safetensors files: every rank reads what it holds, and no rank holds the whole model."""

from __future__ import annotations

import json
import math
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

Place = tuple[slice, ...]
Fresh = Callable[[str, torch.Size], Tensor | None]
"""A whole tensor that no file has (of an adapter, of a value head), by name and shape; None: it is in the files."""


class Weights(Protocol):
    """Where weights come from."""

    def names(self) -> set[str]:
        """What there is."""

    def read(self, name: str, place: Place) -> Tensor:
        """A part of a weight."""


class SafetensorsFiles:
    """The safetensors files in a folder of Hugging Face's format. They are mapped, and read where they are used."""

    def __init__(self, folder: str) -> None:
        root = Path(folder)
        if (root / INDEX).is_file():
            index = json.loads((root / INDEX).read_text(encoding="utf-8"))["weight_map"]
            self._files = {name: root / file for name, file in index.items()}
        elif (root / SINGLE).is_file():
            with safe_open(root / SINGLE, framework="pt") as file:
                self._files = dict.fromkeys(file.keys(), root / SINGLE)
        else:
            self._files = {}
        self._open: dict[Path, Any] = {}
        self.bytes_read = 0

    def names(self) -> set[str]:
        """The weights in the files. None where there is no such file."""
        return set(self._files)

    def read(self, name: str, place: Place) -> Tensor:
        """A part of a weight, in the type of the file."""
        path = self._files[name]
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        part: Tensor = self._open[path].get_slice(name)[place]
        self.bytes_read += part.nbytes
        return part


class WholeModel:
    """A whole model in this process, as transformers loads it: for files that must be converted."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._weights: dict[str, Tensor] = model.state_dict()

    def names(self) -> set[str]:
        """The model's weights."""
        return set(self._weights)

    def read(self, name: str, place: Place) -> Tensor:
        """A part of a weight."""
        return self._weights[name][place]


def load_weights(
    model: PreTrainedModel,
    folder: str,
    *,
    fresh: Fresh,
    file_name: Callable[[str], str],
    load_whole: Callable[[], PreTrainedModel],
) -> None:
    """Fill the sharded, empty `model` from `folder`. file_name: from the model's name of a weight to the file's.

    Where the files name weights in another way, or are no safetensors files, every rank loads the whole model by
    load_whole, with a warning.
    """
    targets: dict[str, Tensor] = dict(model.named_parameters())
    persistent = model.state_dict().keys()
    targets |= {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    weights: Weights = SafetensorsFiles(folder)
    absent = [name for name in targets if file_name(name) not in weights.names()]
    made = {name: tensor for name in absent if (tensor := fresh(name, targets[name].shape)) is not None}
    wanted = {name: file_name(name) for name in targets.keys() - made.keys()}
    if missing := sorted(set(wanted.values()) - weights.names()):
        warnings.warn(
            f"{folder} has no safetensors files with the weights of {type(model).__name__} under their own names "
            f"({missing[0]} and {len(missing) - 1} more are missing): every rank loads the whole model once.",
            stacklevel=2,
        )
        weights = WholeModel(load_whole())
    with torch.no_grad():
        for name, target in targets.items():
            place = local_place(target)
            local = target.to_local() if isinstance(target, DTensor) else target
            local.copy_(made[name][place] if name in made else weights.read(wanted[name], place))


def local_place(tensor: Tensor) -> Place:
    """Where in the whole tensor this rank's part lies."""
    if not isinstance(tensor, DTensor):
        return tuple(slice(0, size) for size in tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def fresh_weight(name: str, shape: torch.Size, seed: int, initializer_range: float) -> Tensor | None:
    """What adapters and value heads start from, the same on all ranks and for any number of them; else None.

    As peft and transformers do it: lora_A uniform with bound 1 / sqrt(inputs), lora_B zero (the adapter changes
    nothing at first); the value head normal, its bias zero.
    """
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    match name.rpartition("lora_")[2]:  # the whole name, if it has no such part
        case "A.default.weight":
            return (torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(shape[-1])
        case "B.default.weight" | "score.bias":
            return torch.zeros(shape)
        case "score.weight":
            return torch.randn(shape, generator=generator) * initializer_range
    return None
