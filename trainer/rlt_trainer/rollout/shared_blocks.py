"""Shared memory for a transfer's buckets on a CPU. It is used again, because new pages take longer than a copy.

A block is a memfd, whose file descriptor passes through a Unix socket: it has no name, so that no process can leave it
behind.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockReference:
    """The block of a bucket, as a message names it."""

    number: int | None
    """None: the block is used once."""
    capacity: int
    """Bytes of the block."""
    size: int
    """Bytes of the bucket, from the start of the block."""


@dataclass(frozen=True)
class BlockState:
    """What a receiver has of the sender's blocks."""

    mapped: frozenset[int] = frozenset()
    """Blocks whose files it needs no more."""
    held: frozenset[int] = frozenset()
    """Blocks of which tensors exist, so that their memory must not change."""


class BlockPool:
    """The sender's blocks."""

    def __init__(self, capacity: int) -> None:
        """`capacity`: bytes of a block. A larger bucket gets its own block, which is used once."""
        self._capacity = capacity
        self._numbers = count()
        self._blocks: dict[int, tuple[int, Tensor]] = {}
        self._free: set[int] = set()
        self._mapped: frozenset[int] = frozenset()
        self._current: tuple[BlockReference, int] | None = None

    def allocate(self, size: int) -> Tensor:
        """Return memory for the next bucket: [size], uint8. It is valid until the receiver holds no tensor of it."""
        number: int | None = None
        if size > self._capacity:
            file, memory = _create(size)
        elif self._free:
            number = self._free.pop()
            file, memory = self._blocks[number]
        else:
            number = next(self._numbers)
            file, memory = self._blocks[number] = _create(self._capacity)
        self._current = BlockReference(number, len(memory), size), file
        return memory[:size]

    def update(self, state: BlockState) -> None:
        """Use again what the receiver no longer holds. A new receiver has nothing of an earlier one's blocks."""
        assert self._current is not None  # the bucket that is sent next
        self._mapped = state.mapped
        self._free = self._blocks.keys() - state.held - {self._current[0].number}

    def export(self) -> tuple[BlockReference, list[int]]:
        """Return what to send of the memory that was allocated last: the reference, and its file if it is needed."""
        assert self._current is not None
        reference, file = self._current
        return reference, [] if reference.number in self._mapped else [file]

    def end_use(self) -> None:
        """Close the file of a block that is used once, after it was sent."""
        assert self._current is not None
        reference, file = self._current
        if reference.number is None:
            os.close(file)

    def close(self) -> None:
        """Close all files."""
        for file, _ in self._blocks.values():
            os.close(file)
        self._blocks.clear()


class BlockMappings:
    """The receiver's mappings of blocks."""

    def __init__(self) -> None:
        self._mapped: dict[int, mmap.mmap] = {}
        self._held: set[int] = set()

    @property
    def state(self) -> BlockState:
        """What this receiver has of the sender's blocks."""
        return BlockState(frozenset(self._mapped), frozenset(self._held))

    def open(self, reference: BlockReference, files: Sequence[int]) -> Tensor:
        """Return the memory of a bucket: [size], uint8. `files` has the block's file unless the block is mapped."""
        number = reference.number
        if files:
            mapping = mmap.mmap(files[0], reference.capacity)
            os.close(files[0])
        else:
            assert number is not None
            mapping = self._mapped[number]
        view = np.frombuffer(mapping, np.uint8, count=reference.size)
        if number is not None:
            self._mapped[number] = mapping
            self._held.add(number)
            weakref.finalize(view, self._held.discard, number).atexit = False
        return torch.from_numpy(view)  # its storage holds the view


def _create(capacity: int) -> tuple[int, Tensor]:
    file = os.memfd_create("rlt-weights")
    os.ftruncate(file, capacity)
    return file, torch.frombuffer(mmap.mmap(file, capacity), dtype=torch.uint8)
