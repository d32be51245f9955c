"""Stacks of experts on their way to an engine: one tensor in place of one for each expert. Pure.

A layer of 128 experts has 384 matrices in the model's files, or three stacks [experts, ...]. A stack has the name of
its first expert in the files: `layers.0.mlp.experts.8.up_proj.weight` with three dimensions has the matrices of expert
8 and those that follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torch import Tensor

_NUMBER = re.compile(r"\bexperts\.(\d+)\.")


def name_experts(name: str, tensor: Tensor) -> list[str] | None:
    """Return a name for each expert of a stack. None: the tensor is not a stack."""
    match = _NUMBER.search(name) if tensor.ndim == 3 else None
    if match is None:
        return None
    first = int(match[1])
    before = name[: match.start(1)]
    after = name[match.end(1) :]
    return [f"{before}{expert}{after}" for expert in range(first, first + len(tensor))]


def cut_stack(name: str, tensor: Tensor, count: int) -> list[tuple[str, Tensor]]:
    """Cut a stack after its first `count` experts. Other tensors stay whole."""
    names = name_experts(name, tensor)
    if names is None or count >= len(names):
        return [(name, tensor)]
    return [(name, tensor[:count]), (names[count], tensor[count:])]


def iterate_experts(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield `weights` with single experts, as in the model's files."""
    for name, tensor in weights:
        names = name_experts(name, tensor)
        yield from zip(names, tensor, strict=True) if names else [(name, tensor)]
