"""Weights as changes: what a transfer sends of a bucket, and how its receiver applies it. Pure.

Both ends hold the buckets of the last transfer. Of each tensor a message has its changed bytes, or the whole tensor
where that is smaller. A changed byte is its position and the XOR of its old and its new value. A hash of each tensor
after the change finds a receiver that has applied it to another value.

In bfloat16 at a learning rate of 1e-6, about 2% of the elements change in a step, most of them in one byte. Changes are
not compressed: zlib needs more than a second for each GiB of weights, and saves 2% of their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from rlt_trainer.rollout.buckets import Bucket, Layout, align
from rlt_trainer.rollout.weight_channel import Received

BLOCK = 2**16
"""Bytes whose positions have a common count, so that a position has 2 bytes."""
WHOLE_EVERY = 100
"""Each transfer of this number has whole tensors, which adds 1% to all bytes: no chain of changes is longer."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Change:
    """What a message has of one tensor."""

    layout: Layout
    digest: bytes
    """XXH3-128 of the tensor after the change."""
    changed: int | None
    """Number of changed bytes. None: the message has the whole tensor."""

    @property
    def size(self) -> int:
        """Bytes in the message."""
        size = self.layout.end - self.layout.start
        return size if self.changed is None else measure_change(size, self.changed)


@dataclass(frozen=True)
class Message:
    """What is sent of a bucket. Its bytes follow it."""

    number: int
    """Of this message in its channel, from 0."""
    bucket: int
    """The number of the bucket in its transfer."""
    base: int | None
    """The version that the changes apply to. None: all tensors are whole."""
    changes: tuple[Change, ...]
    digest: bytes
    """XXH3-128 of its bytes."""

    @property
    def size(self) -> int:
        """Number of bytes."""
        return sum(change.size for change in self.changes)


@dataclass(frozen=True)
class End:
    """The message after the last bucket."""

    number: int
    """As in Message."""
    version: int
    """Of the weights."""


class Encoder:
    """The sending end. It holds one copy of the weights, in the format in which they are sent."""

    def __init__(self) -> None:
        self._held: list[Bucket] = []
        self._base: int | None = None
        self._number = 0
        self._bucket = 0
        self._transfers = 0

    def encode(self, bucket: Bucket) -> tuple[Message, Bytes]:
        """Return the message for the next bucket and its bytes. `bucket` can be overwritten then."""
        held = self._held[self._bucket] if self._bucket < len(self._held) else None
        if held is None or held.layouts != bucket.layouts:
            self._held[self._bucket :] = [Bucket(bucket.layouts, torch.zeros_like(bucket.data))]
            held = self._held[-1]
        pairs = [(read_tensor(bucket, each), read_tensor(held, each)) for each in bucket.layouts]
        changes: list[Change] = []
        parts = [np.empty(0, np.uint8)]
        for layout, (new, old) in zip(bucket.layouts, pairs, strict=True):
            changed, part = (None, new) if self._base is None else encode_tensor(old, new)
            changes.append(Change(layout, compute_digest(new), changed))
            parts.append(part)
            old[:] = new
        data = np.concatenate(parts)
        digest = compute_digest(data)
        message = Message(self._number, self._bucket, self._base, tuple(changes), digest)
        self._number += 1
        self._bucket += 1
        return message, data

    def end(self, version: int) -> End:
        """End the transfer of weights with this version."""
        end = End(self._number, version)
        self._transfers += 1
        self._base = None if self._transfers % WHOLE_EVERY == 0 else version
        self._number += 1
        self._bucket = 0
        return end


class Decoder:
    """The receiving end. It holds one copy of the weights, in the format in which they are sent."""

    def __init__(self) -> None:
        self._held: list[Bucket] = []
        self._version: int | None = None
        """Of the weights. None: they are damaged, or incomplete, and no change applies to them."""
        self._number = 0
        self._damaged: list[str] = []

    def decode(self, message: Message, data: Bytes) -> Bucket:
        """Apply a message, and return its bucket, which is valid until the next transfer.

        A message that cannot be applied is in the result of `end`. Then the bucket has the tensors as far as they are
        known.
        """
        problem = self._find_problem(message, data)
        layouts = tuple(change.layout for change in message.changes)
        if problem is None and not self._has(message.bucket, layouts):
            size = align(max((layout.end for layout in layouts), default=0))
            self._held[message.bucket :] = [Bucket(layouts, torch.zeros(size, dtype=torch.uint8))]
        self._number = message.number + 1
        if problem is not None:
            self._damaged.append(f"message {message.number}: {problem}")
            return self._held[message.bucket] if self._has(message.bucket, layouts) else Bucket((), torch.empty(0))
        held = self._held[message.bucket]
        start = 0
        for change in message.changes:
            values = read_tensor(held, change.layout)
            part = data[start : start + change.size]
            start += change.size
            if change.changed is None:
                values[:] = part
            else:
                apply_change(change.changed, part, values)
            if compute_digest(values) != change.digest:
                self._damaged.append(change.layout.name)
        return held

    def end(self, end: End) -> Received:
        """End the transfer, and return its result."""
        if end.number != self._number:
            self._damaged.append(f"message {self._number}: it did not arrive")
        self._number = end.number + 1
        self._version = None if self._damaged else end.version
        received = Received(end.version, tuple(self._damaged))
        self._damaged = []
        return received

    def _has(self, bucket: int, layouts: tuple[Layout, ...]) -> bool:
        return bucket < len(self._held) and self._held[bucket].layouts == layouts

    def _find_problem(self, message: Message, data: Bytes) -> str | None:
        """Return why the message cannot be applied."""
        if message.number != self._number:
            return f"expected message {self._number}"
        if compute_digest(data) != message.digest:
            return "its bytes have changed"
        if message.base is not None and message.base != self._version:
            return f"it changes weights of version {message.base}, and the engine has {self._version}"
        if message.bucket > len(self._held):
            return "the bucket before it is not known"
        return None


def encode_tensor(old: Bytes, new: Bytes) -> tuple[int | None, Bytes]:
    """Return the number of changed bytes, and what to send. None and `new` where that is smaller.

    For each BLOCK it is the number of changed bytes, in 4 bytes, and then for each of them the position in its block,
    in 2 bytes, and the XOR.
    """
    differs = old != new
    changed = int(np.count_nonzero(differs))
    if measure_change(len(new), changed) >= len(new):
        return None, new
    positions = np.flatnonzero(differs)
    counts = np.bincount(positions // BLOCK, minlength=count_blocks(len(new))).astype(np.uint32)
    offsets = (positions % BLOCK).astype(np.uint16)
    return changed, np.concatenate([counts.view(np.uint8), offsets.view(np.uint8), old[positions] ^ new[positions]])


def apply_change(changed: int, data: Bytes, tensor: Bytes) -> None:
    """Change `tensor` in place, from what `encode_tensor` has returned."""
    blocks = count_blocks(len(tensor))
    counts, offsets, values = np.split(data, [4 * blocks, 4 * blocks + 2 * changed])
    starts = np.repeat(np.arange(blocks) * BLOCK, counts.view(np.uint32))
    tensor[starts + offsets.view(np.uint16)] ^= values


def measure_change(size: int, changed: int) -> int:
    """Return the bytes that `encode_tensor` sends for `changed` bytes of a tensor with `size` bytes."""
    return 4 * count_blocks(size) + 3 * changed


def count_blocks(size: int) -> int:
    """Return the number of blocks of a tensor with `size` bytes."""
    return ceil(size / BLOCK)


def compute_digest(data: Bytes) -> bytes:
    """Compute the XXH3-128 of bytes."""
    return xxhash.xxh3_128_digest(data.data)


def read_tensor(bucket: Bucket, layout: Layout) -> Bytes:
    """Return the bytes of a tensor, a view."""
    data: Bytes = bucket.data[layout.start : layout.end].numpy()
    return data
