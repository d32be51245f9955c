"""Buckets: weights packed into flat tensors of bounded size with a checksum, to send to other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor

from rlt_trainer.rollout.expert_stacks import cut_stack, name_experts

BUCKET_BYTES = 256 * 2**20
"""Maximum size of a bucket, unless a single tensor is larger."""
ALIGNMENT = 8
"""Start offsets are multiples of this number of bytes, so that each tensor can be viewed in its dtype."""


@dataclass(frozen=True)
class Layout:
    """The position of a tensor in a bucket."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    """Offset of the first byte."""

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Bucket:
    """Several tensors packed into one."""

    layouts: tuple[Layout, ...]
    data: Tensor
    """[bytes], uint8. The length is a multiple of ALIGNMENT. The bytes between the tensors have no meaning."""

    @classmethod
    def pack(cls, tensors: list[tuple[str, Tensor]], allocate: Callable[[int], Tensor]) -> Self:
        """Copy `tensors` into a bucket, in the memory that `allocate` returns for its size."""
        layouts: list[Layout] = []
        end = 0
        for name, tensor in tensors:
            layouts.append(Layout(name, tuple(tensor.shape), tensor.dtype, end))
            end = align(layouts[-1].end)
        data = allocate(end)
        for layout, (_, tensor) in zip(layouts, tensors, strict=True):
            data[layout.start : layout.end] = tensor.contiguous().view(-1).view(torch.uint8)
        return cls(tuple(layouts), data)

    def unpack(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors, which are views of the bucket."""
        for layout in self.layouts:
            yield layout.name, self.data[layout.start : layout.end].view(layout.dtype).view(layout.shape)

    def checksum(self) -> Tensor:
        """Return the sum of the 8-byte words modulo 2**64: [], int64. A missing or changed word changes it."""
        return self.data.view(torch.int64).sum()


def align(size: int) -> int:
    """Round up to a multiple of ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def pack_buckets(
    weights: Iterable[tuple[str, Tensor]], allocate: Callable[[int], Tensor], *, limit: int
) -> Iterator[Bucket]:
    """Pack `weights`, in order, into buckets of at most `limit` bytes, or of one larger tensor. Stacks are cut."""
    pending: list[tuple[str, Tensor]] = []
    room = limit // ALIGNMENT * ALIGNMENT
    for weight in weights:
        rest = [weight]
        while rest:
            name, tensor = rest.pop()
            count = len(name_experts(name, tensor) or [name])
            fitting = room * count // max(1, tensor.nbytes)
            if pending and fitting == 0:
                yield Bucket.pack(pending, allocate)
                pending = []
                room = limit // ALIGNMENT * ALIGNMENT
                rest = [(name, tensor)]
                continue
            first, *rest = cut_stack(name, tensor, max(1, fitting))
            pending.append(first)
            room = max(0, room - align(first[1].nbytes))
    if pending:
        yield Bucket.pack(pending, allocate)
