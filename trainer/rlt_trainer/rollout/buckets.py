"""Weights as flat pieces of bounded size with a checksum: how they travel to engines in other processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor

BUCKET_BYTES = 256 * 2**20
"""A bucket is no larger, unless a single tensor is."""
ALIGNMENT = 8
"""Tensors begin at multiples of so many bytes, so that each can be viewed in its own type."""


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies in a bucket."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    """Bytes before it."""

    @property
    def end(self) -> int:
        """Bytes up to its last one."""
        return self.start + prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Bucket:
    """Several tensors in one."""

    layouts: tuple[Layout, ...]
    data: Tensor
    """[bytes], uint8; a multiple of ALIGNMENT, zeros between the tensors."""

    @classmethod
    def pack(cls, tensors: list[tuple[str, Tensor]]) -> Self:
        """A copy of `tensors`, at their device."""
        layouts: list[Layout] = []
        end = 0
        for name, tensor in tensors:
            layouts.append(Layout(name, tuple(tensor.shape), tensor.dtype, end))
            end = aligned(layouts[-1].end)
        data = torch.zeros(end, dtype=torch.uint8, device=tensors[0][1].device)
        for layout, (_, tensor) in zip(layouts, tensors, strict=True):
            data[layout.start : layout.end] = tensor.contiguous().view(-1).view(torch.uint8)
        return cls(tuple(layouts), data)

    def unpack(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors, which are views of the bucket."""
        for layout in self.layouts:
            yield layout.name, self.data[layout.start : layout.end].view(layout.dtype).view(layout.shape)

    def checksum(self) -> int:
        """The sum of its 8-byte words, modulo 2**64: what does not arrive, or not whole, changes it."""
        return int(self.data.view(torch.int64).sum())


def aligned(size: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def buckets(weights: Iterable[tuple[str, Tensor]], *, limit: int = BUCKET_BYTES) -> Iterator[Bucket]:
    """`weights` in their order, packed into buckets of at most `limit` bytes, or of one larger tensor."""
    waiting: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in weights:
        more = aligned(tensor.numel() * tensor.itemsize)
        if waiting and size + more > limit:
            yield Bucket.pack(waiting)
            waiting, size = [], 0
        waiting.append((name, tensor))
        size += more
    if waiting:
        yield Bucket.pack(waiting)
