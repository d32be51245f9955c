"""Where the weights of the model's files are in vLLM's parameters, from vLLM's own loaders.

vLLM fuses weights and gives each device a shard of them. While it loads the weights of a sync, `Layouts` follows which
weight it passes to which loader of a parameter. The loader is then called once more with the numbers of the rows (or,
if the columns are sharded, of the columns) in place of the weight, and a small tensor in place of the parameter. The
numbers that arrive there are the layout. A weight that vLLM changes before it loads it, or that its loader changes, has
no known layout.
"""

from __future__ import annotations

import inspect
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from rlt_trainer.rollout.expert_stacks import name_experts
from rlt_trainer.rollout.weight_sums import UNKNOWN, Layout, Piece

_log = logging.getLogger(__name__)

WRAPPER = "online_process_loader"
"""Name of vLLM's wrapper around the loaders (vllm/model_executor/model_loader/reload/layerwise.py, vLLM 0.32)."""


class Layouts:
    """The layouts of a model's parameters and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._numbers: dict[tuple[str, str], _Numbers] = {}
        self.received: list[str] = []
        """The names of the weights in the last sync."""

    def find(self, module: str, name: str) -> Layout:
        """Return the layout in which the loaders of a parameter or buffer leave it."""
        numbers = self._numbers.get((module, name))
        return numbers.find() if numbers else UNKNOWN

    def by_tensor(self) -> dict[int, tuple[Tensor, Layout]]:
        """Return the parameters and buffers with a known layout, by their `id`: layers share some."""
        found = {}
        for module, name in self._numbers:
            tensor = getattr(self._model.get_submodule(module), name, None)
            layout = self.find(module, name)
            if tensor is not None and layout.pieces:
                found[id(tensor)] = (tensor, layout)
        return found

    def follow(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield `weights` to the `load_weights` of the model, and follow where it passes them."""
        self.received = []
        current: list[tuple[str, Tensor]] = []
        wrapped = list(self._wrap_loaders(current))
        try:
            for name, tensor in weights:
                self.received += name_experts(name, tensor) or [name]
                current[:] = [(name, tensor)]
                yield name, tensor
        finally:
            for parameter, loader in wrapped:
                _set_loader(parameter, loader)

    def _wrap_loaders(self, current: list[tuple[str, Tensor]]) -> Iterator[tuple[Tensor, Callable[..., Any] | None]]:
        """Wrap the loader of each parameter and buffer. Yield them with the loader before."""
        from vllm.model_executor.model_loader.weight_utils import default_weight_loader

        for module_name, module in self._model.named_modules():
            tensors = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
            for name, parameter in tensors.items():
                loader = getattr(parameter, "weight_loader", None)
                numbers = self._numbers.setdefault((module_name, name), _Numbers())
                _set_loader(parameter, _follow_loader(loader or default_weight_loader, numbers, current))
                yield parameter, loader


def _follow_loader(
    loader: Callable[..., Any], numbers: _Numbers, current: list[tuple[str, Tensor]]
) -> Callable[..., Any]:
    signature = inspect.signature(loader)

    @wraps(loader)  # with the name of vLLM's wrapper, which vLLM looks for
    def load(*arguments: Any, **options: Any) -> Any:
        call = signature.bind(*arguments, **options)
        weight = list(call.arguments.values())[1]
        name, sent = current[0]
        if weight.data_ptr() == sent.data_ptr() and (weight.shape, weight.stride()) == (sent.shape, sent.stride()):
            numbers.load(name, loader, call)
        return loader(*arguments, **options)

    return load


def _set_loader(parameter: Tensor, loader: Callable[..., Any] | None) -> None:
    if loader is not None:
        parameter.weight_loader = loader  # type: ignore[attr-defined]
    else:
        del parameter.weight_loader  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Range:
    """The numbers of a weight."""

    name: str
    first: int
    stop: int
    columns: int
    """Numbers in a row of the weight: 1, or the number of its columns."""


class _Numbers:
    """What one parameter has when it is loaded with numbers. Zero is padding, and each weight has its own range."""

    def __init__(self) -> None:
        self._loaded: Tensor | None = None
        self._shape = torch.Size()
        self._by_column = False
        self._calls: set[str] = set()
        """The calls of loaders."""
        self._ranges: list[_Range] = []
        self._next = 1
        self._layout: Layout | None = UNKNOWN

    def load(self, name: str, loader: Callable[..., Any], call: inspect.BoundArguments) -> None:
        """Load numbers in place of the weight `name`, as the loader's `call` does, unless that was done before."""
        (first, parameter), (second, weight), *others = call.arguments.items()
        key = f"{name} {others}"
        if key in self._calls:
            return
        self._calls.add(key)
        by_column = parameter.ndim > 1 and parameter.shape[-1] != weight.shape[-1]
        if self._loaded is None:
            self._loaded = like(parameter, torch.zeros(_shrink(parameter.shape, by_column), dtype=torch.float64))
            self._shape = parameter.shape
            self._by_column = by_column
        shape = _shrink(weight.shape, by_column)
        names = name_experts(name, weight) or [name]
        size = shape.numel() // len(names)
        # the numbers of two weights do not follow each other
        firsts = torch.arange(len(names)) * (size + 1) + self._next
        numbers = (firsts[:, None] + torch.arange(size)).double().view(shape)
        columns = weight.shape[-1] if by_column else 1
        self._ranges += [
            _Range(each, first, first + size, columns) for each, first in zip(names, firsts.tolist(), strict=True)
        ]
        self._next += len(names) * (size + 1)
        self._layout = None
        original = inspect.unwrap(loader, stop=lambda each: getattr(each, "__name__", "") != WRAPPER)
        call = inspect.BoundArguments(
            call.signature, OrderedDict(call.arguments | {first: self._loaded, second: numbers})
        )
        try:
            if by_column != self._by_column or (by_column and weight.shape[-2] != self._shape[-2]):
                raise ValueError("it has shards of rows and of columns")
            if torch.promote_types(weight.dtype, parameter.dtype) != parameter.dtype:
                raise ValueError(f"it is rounded from {weight.dtype} to {parameter.dtype}")
            original(*call.args, **call.kwargs)
        except Exception as error:  # of a loader that requires the shape of the weight
            _log.debug("the place of %s in vLLM is not known: %s", name, error)
            self._loaded.fill_(torch.nan)

    def find(self) -> Layout:
        """Return the layout."""
        if self._layout is None:
            assert self._loaded is not None
            self._layout = self._read(self._loaded.as_subclass(Tensor))
        return self._layout

    def _read(self, loaded: Tensor) -> Layout:
        numbers = loaded.long()
        if not torch.equal(numbers.double(), loaded) or not ((numbers >= 0) & (numbers < self._next)).all():
            return UNKNOWN  # the loader changes values
        height, width = (self._shape[-2], self._shape[-1]) if self._by_column else (1, 1)
        pieces: list[Piece] = []
        columns: set[int] = set()
        for line, values in enumerate(numbers.view(-1, width) if self._by_column else [numbers.flatten()]):
            for start, stop in find_runs(values):
                number = int(values[start])
                each = self._ranges[bisect_right(self._ranges, number, key=lambda each: each.first) - 1]
                row, column = divmod(number - each.first, each.columns)
                is_whole = not self._by_column or (stop - start == width <= each.columns - column)
                if number + stop - start > each.stop or not is_whole:
                    return UNKNOWN
                if self._by_column:
                    pieces.append(Piece(each.name, line * height, (line + 1) * height, row * height))
                else:
                    pieces.append(Piece(each.name, start, stop, row))
                columns.add(column)
        return Layout(tuple(pieces), columns.pop(), self._shape) if len(columns) == 1 else UNKNOWN


def find_runs(numbers: Tensor) -> list[tuple[int, int]]:
    """Return start and stop of the runs in positive `numbers` [N] in which each is the one before plus 1."""
    is_positive = numbers > 0
    follows = is_positive[:-1] & (numbers.diff() == 1)  # the one before
    edge = follows.new_zeros(1)
    starts = is_positive & ~torch.cat([edge, follows])
    stops = is_positive & ~torch.cat([follows, edge])
    return list(zip(starts.nonzero().flatten().tolist(), (stops.nonzero().flatten() + 1).tolist(), strict=True))


def like(parameter: Tensor, values: Tensor) -> Tensor:
    """Return `values`, in place, with the class and the attributes of a parameter, which its loader reads."""
    values.__class__ = parameter.__class__
    values.__dict__ = parameter.__dict__.copy()
    return values


def _shrink(shape: torch.Size, by_column: bool) -> torch.Size:
    """Return the shape with one element for each row, or for each column of each matrix in a stack."""
    if len(shape) < 2:
        return shape
    return torch.Size((*shape[:-2], 1, shape[-1]) if by_column else (*shape[:-1], 1))
