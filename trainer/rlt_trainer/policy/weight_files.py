"""The weights in a model's files, and in the names and the format of the model.

transformers renames and fuses some weights on load. The experts of a layer are one tensor in the model, and two or
three tensors for each expert in the files: a rank reads its experts' tensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import (
    Concatenate,
    MergeModulelist,
    WeightConverter,
    WeightRenaming,
    WeightTransform,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

Region = tuple[slice, ...]


class Weights(Protocol):
    """A source of weights."""

    def names(self) -> set[str]:
        """Names of the available weights."""

    def read(self, name: str, region: Region) -> Tensor:
        """Read a region of a weight."""


class SafetensorsFiles:
    """The safetensors files in a folder in the Hugging Face format. They are memory-mapped and read on demand."""

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
        """Names of the weights in the files. Empty without safetensors files."""
        return set(self._files)

    def read(self, name: str, region: Region) -> Tensor:
        """Read a region of a weight, in the dtype of the file."""
        path = self._files[name]
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        part: Tensor = self._open[path].get_slice(name)[region]
        self.bytes_read += part.nbytes
        return part


@dataclass
class _Source:
    """What a weight of the model is made of."""

    converter: WeightConverter | None
    """None: it is one weight of the files under another name."""
    files: dict[str, list[str]] = field(default_factory=dict)
    """Pattern of the converter -> names in the files, in order."""

    def is_stacked(self) -> bool:
        """Whether a slice of the weight's first dimension is made of the same slice in the files."""
        return self.converter is not None and _stacks(self.converter)


class ConvertedFiles:
    """Files in the names and the format of a model."""

    def __init__(self, files: Weights, model: PreTrainedModel, names: Sequence[str]) -> None:
        """names: of the model's weights. The model may be sharded: set_conversions must have been called before."""
        self._files = files
        self._model = model
        self._sources = _find_sources(files.names(), names, model)

    def names(self) -> set[str]:
        """Names of the weights that the files contain."""
        return set(self._sources)

    def read(self, name: str, region: Region) -> Tensor:
        """Read a region of a weight. Memory: the region, or the weight if its conversion cannot be split."""
        source = self._sources[name]
        if source.converter is None:
            ((file,),) = source.files.values()
            return self._files.read(file, region)
        converter = deepcopy(source.converter)
        first, *others = region
        is_stacked = source.is_stacked()
        for pattern, files in source.files.items():
            for file in files[first] if is_stacked else files:
                converter.add_tensor(name, file, pattern, self._files.read(file, (slice(None),)))  # type: ignore[arg-type]
        converted: Tensor = converter.convert(name, model=self._model, config=self._model.config)[name]
        return converted[(slice(None) if is_stacked else first, *others)]


def set_conversions(model: PreTrainedModel, conversions: list[WeightTransform]) -> None:
    """Set the conversions from the files of `model` to the model. transformers inverts them when it saves the model.

    Without them, it finds conversions for its own classes, and not for a sharded model, which has a class of FSDP2.
    """
    model._weight_conversions = conversions  # type: ignore[assignment]


def to_file_format(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of `model` under the names and in the format of its files, with experts in stacks.

    Every engine that loads the files loads these. rlt_trainer/rollout/expert_stacks.py has the names of stacks. Weights
    that the files fuse and the model splits stay split.
    """
    conversions: list[WeightTransform] = model._weight_conversions  # type: ignore[assignment]
    invertible = [_Inverted(_keep_stack(each)) for each in conversions if len(each.target_patterns) == 1]
    outline = SimpleNamespace(config=model.config, _weight_conversions=invertible)
    for name, tensor in weights:
        yield from revert_weight_conversion(cast("PreTrainedModel", outline), {name: tensor}).items()


class _Inverted:
    """A conversion that is inverted once, and not for each weight. transformers calls nothing else of it."""

    def __init__(self, conversion: WeightTransform) -> None:
        self._inverse = conversion.reverse_transform()

    def reverse_transform(self) -> WeightTransform:
        return self._inverse


def _stacks(converter: WeightConverter) -> bool:
    """Return whether it stacks weights of the files, such as experts, and each slice depends on the same slices."""
    first, *others = converter.operations
    stacks = isinstance(first, MergeModulelist) and first.dim == 0
    return stacks and all(isinstance(each, Concatenate) and each.dim > 0 for each in others)


def _keep_stack(conversion: WeightTransform) -> WeightTransform:
    """Return a conversion of stacks of experts, which have the names of their first experts in the files."""
    numbered = [each.replace("experts.*.", "experts.0.") for each in conversion._original_source_patterns]
    if not isinstance(conversion, WeightConverter) or not _stacks(conversion) or "*" in "".join(numbered):
        return conversion
    # The inverse of a concatenation returns as many tensors as there are names, here also one.
    operations = conversion.operations[1:] or [Concatenate(dim=1)]
    kept = WeightConverter(numbered, conversion._original_target_patterns, operations)
    kept.scope_prefix = conversion.scope_prefix
    kept.base_model_prefix = conversion.base_model_prefix
    return kept


def _find_sources(files: set[str], names: Sequence[str], model: PreTrainedModel) -> dict[str, _Source]:
    """As in transformers' convert_and_load_state_dict_in_model."""
    outline: dict[str, Any] = dict.fromkeys(names, True)
    conversions: list[WeightTransform] = model._weight_conversions  # type: ignore[assignment]
    renamings = [each for each in conversions if isinstance(each, WeightRenaming)]
    converters = [each for each in conversions if isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    sources: dict[str, _Source] = {}
    for file in sorted(files, key=dot_natural_key):
        name, pattern = rename_source_key(file, renamings, converters, model.base_model_prefix, outline)
        if name not in outline and file in outline:  # files in the model's own format
            name = file
            pattern = None
        if name in outline:
            source = sources.setdefault(name, _Source(by_pattern[pattern] if pattern else None))
            source.files.setdefault(pattern or file, []).append(file)
    set_conversions(model, [each for each in conversions if each.was_used()])
    return sources
