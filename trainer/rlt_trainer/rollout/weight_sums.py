"""Sums over weights, to compare the weights of two processes.

Each element has a hash, and sums are modulo 2**64. One changed bit of one element changes both kinds of sums:

- The sum of a part of the model, such as a layer, does not depend on the layout: it is the same when weights are fused,
  transposed or padded with zeros. So it is also the same if gate and up or two heads are exchanged.
- The sum of a weight multiplies each hash by a number for its row and a number for its column in the files' format. It
  changes if elements are exchanged, and it adds up over the shards of an engine. It needs the place of each element: a
  `Layout`.

The sums stay on the device of the weights until `read`: a host does not wait for each of thousands of weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from rlt_trainer.rollout.expert_stacks import name_experts

OTHERS = "embedding, output layer or norm"
"""The weights without a number in their name."""
EXPERTS = "experts"
"""The word in transformers' and vLLM's names before an expert's number, or for the stack of all experts."""
CHUNK_ELEMENTS = 2**22
"""Elements per hashing step, of 8 bytes each."""
MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""The multipliers of SplitMix64 (Steele, Lea, Flood 2014), as signed integers."""
ROWS = 1
COLUMNS = 2
"""The seeds for the numbers of rows and columns. They differ, so that the sum of a transposed matrix differs."""
MODULUS = 2**64


@dataclass(frozen=True)
class Sums:
    """The sums over the weights of one process, or of several."""

    parts: dict[str, int] = field(default_factory=dict)
    """By part of the model: a layer, an expert of a layer, or OTHERS."""
    weights: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sum and number of elements of each weight, by its name in the files. Replicas count each time. (0, 0): the
    process has received the weight, and the place of its elements is not known."""


@dataclass(frozen=True)
class Piece:
    """Rows of a tensor that are rows of a weight in the files' format. Vectors are matrices with one column."""

    name: str
    """Of the weight."""
    start: int
    stop: int
    """The rows of the tensor, whose leading dimensions count as one."""
    row: int
    """The row of the weight at `start`."""


@dataclass(frozen=True)
class Block:
    """Pieces of equal height, one after the other, that start at the same row of their weights."""

    names: list[str]
    start: int
    """The first row of the tensor."""
    height: int
    """Rows of each piece."""
    row: int

    @property
    def stop(self) -> int:
        """The row of the tensor after the last one."""
        return self.start + len(self.names) * self.height


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor are in the files' format."""

    pieces: tuple[Piece, ...] = ()
    column: int = 0
    """The column of the weights at column 0 of the tensor."""
    shape: torch.Size | None = None
    """Of the tensor. It has no known layout if its shape is another one."""

    @cached_property
    def blocks(self) -> list[Block]:
        """The pieces in blocks: the matrices of a layer's experts are one."""
        blocks: list[Block] = []
        for piece in self.pieces:
            height = piece.stop - piece.start
            last = blocks[-1] if blocks else None
            if last and (last.stop, last.height, last.row) == (piece.start, height, piece.row):
                last.names.append(piece.name)
            else:
                blocks.append(Block([piece.name], piece.start, height, piece.row))
        return blocks


UNKNOWN = Layout()


class Summation:
    """Adds up weights. Tensors are of shape [...]; only `read` waits for their device."""

    def __init__(self) -> None:
        self._part_names: list[str] = []
        self._part_sums: list[Tensor] = []
        self._weight_names: list[str] = []
        self._weight_sums: list[Tensor] = []
        self._elements: dict[str, int] = {}

    def follow(
        self, weights: Iterable[tuple[str, Tensor]], *, share: int = 0, shares: int = 1
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield `weights`, in the files' format, unchanged, and add one share of them: every `shares`-th tensor."""
        for number, (name, tensor) in enumerate(weights):
            if number % shares == share:
                self.add(name, tensor)
            yield name, tensor

    def add(self, name: str, tensor: Tensor, layout: Layout | None = None, *, is_replica: bool = False) -> None:
        """Add the weight `name`, or a tensor of an engine with this `layout`. A replica counts for its weights only."""
        if tensor.numel() == 0:
            return
        rows = _as_rows(tensor)
        if layout is None:
            names = name_experts(name, tensor) or [name]
            blocks = [Block(names, 0, len(rows) // len(names), 0)]
            column = 0
        else:
            blocks = layout.blocks if layout.shape == tensor.shape else []
            column = layout.column
        sums, placed = _sum_rows(rows, column)
        if not is_replica:
            parts = list_parts(name, tensor)
            self._part_names += parts
            self._part_sums.append(sums.view(len(parts), -1).sum(-1))
        for block in blocks:
            keys = _keys(ROWS, block.row, block.height, rows.device)
            self._weight_names += block.names
            self._weight_sums.append((placed[block.start : block.stop].view(-1, block.height) * keys).sum(-1))
            count = block.height * rows.shape[1]
            for each in block.names:
                self._elements[each] = self._elements.get(each, 0) + count

    def include(self, other: Summation) -> None:
        """Add the weights of another summation."""
        self._part_names += other._part_names
        self._part_sums += other._part_sums
        self._weight_names += other._weight_names
        self._weight_sums += other._weight_sums
        for name, count in other._elements.items():
            self._elements[name] = self._elements.get(name, 0) + count

    def expect(self, names: Iterable[str]) -> None:
        """Include these weights in the sums, also if no tensor is at a known place."""
        self._elements = dict.fromkeys(names, 0) | self._elements

    def read(self) -> Sums:
        """Wait for the sums."""
        parts: dict[str, int] = defaultdict(int)
        for part, value in zip(self._part_names, _read(self._part_sums), strict=True):
            parts[part] = (parts[part] + value) % MODULUS
        weights: dict[str, int] = defaultdict(int)
        for name, value in zip(self._weight_names, _read(self._weight_sums), strict=True):
            weights[name] = (weights[name] + value) % MODULUS
        return Sums(dict(parts), {name: (weights[name], count) for name, count in self._elements.items()})


def sum_weights(weights: Iterable[tuple[str, Tensor]]) -> Sums:
    """Compute the sums over all of `weights`, in the files' format."""
    summation = Summation()
    for name, tensor in weights:
        summation.add(name, tensor)
    return summation.read()


def add_up_sums(several: Iterable[Sums]) -> Sums:
    """Add up the sums over parts of the weights, such as one device's."""
    total = Sums()
    for sums in several:
        for part, value in sums.parts.items():
            total.parts[part] = (total.parts.get(part, 0) + value) % MODULUS
        for name, (value, elements) in sums.weights.items():
            before, count = total.weights.get(name, (0, 0))
            total.weights[name] = ((before + value) % MODULUS, count + elements)
    return total


def list_parts(name: str, tensor: Tensor) -> list[str]:
    """Return the part of the model that a weight belongs to, or a part for each tensor in a stack of experts.

    The engine may have a stack [experts, ...] where the files have single experts.
    """
    words = name.split(".")
    layer = next((word for word in words if word.isdecimal()), None)
    if layer is None:
        return [OTHERS]
    after = words[words.index(EXPERTS) + 1 :] if EXPERTS in words else []
    number = next((int(word) for word in after if word.isdecimal()), None)
    experts = range(0)
    if number is not None:
        experts = range(number, number + len(name_experts(name, tensor) or [name]))
    elif after and tensor.ndim > 1:
        experts = range(len(tensor))
    return [f"layer {layer}, expert {expert}" for expert in experts] or [f"layer {layer}"]


def sum_elements(tensor: Tensor) -> Tensor:
    """Sum the hashes of all elements, converted to float32, regardless of their place. The hash of zero is 0.

    Returns a signed number of 64 bits, on the device of the tensor: [].
    """
    return _sum_rows(_as_rows(tensor))[0].sum()


def _as_rows(tensor: Tensor) -> Tensor:
    columns = tensor.shape[-1] if tensor.ndim > 1 else 1
    return tensor.detach().reshape(-1, columns)


def _sum_rows(rows: Tensor, column: int = 0) -> tuple[Tensor, Tensor]:
    """Return the sums of each row [R] of [R, C]: of the hashes, and of the hashes times the numbers of the columns."""
    keys = _keys(COLUMNS, column, rows.shape[1], rows.device)
    plain: list[Tensor] = []
    placed: list[Tensor] = []
    for part in torch.split(rows, max(1, CHUNK_ELEMENTS // rows.shape[1])):
        hashes = (part.float() + 0.0).view(torch.int32).to(torch.int64).mul_(MULTIPLIERS[0])  # -0.0 + 0.0 is +0.0
        hashes ^= hashes >> 32
        plain.append(hashes.sum(-1))
        placed.append(hashes.mul_(keys).sum(-1))
    return torch.cat(plain), torch.cat(placed)


def _keys(seed: int, start: int, count: int, device: torch.device) -> Tensor:
    """Return the odd numbers of `count` rows or columns."""
    stop = start + count
    return _list_keys(seed, 1 << stop.bit_length(), device)[start:stop]


@lru_cache(maxsize=64)
def _list_keys(seed: int, count: int, device: torch.device) -> Tensor:
    """SplitMix64 of the numbers from seed * 2**40."""
    keys = torch.arange(seed << 40, (seed << 40) + count, device=device)
    for multiplier in MULTIPLIERS:
        keys = keys * multiplier
        keys ^= keys >> 32
    return keys | 1


def _read(sums: list[Tensor]) -> list[int]:
    return torch.cat([each.reshape(-1).to(sums[0].device) for each in sums]).tolist() if sums else []
