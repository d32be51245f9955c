"""Sums over weights by which two holders of them compare what they have, however each of them keeps it.

A sum is over a hash of each element, so that it is the same after weights were fused, transposed or padded with zeros,
and the sums of parts add up. One changed bit of one element changes it. Modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

Sums = dict[int | None, int]
"""By layer, which the first number in a weight's name tells; None: embedding, output layer and the like."""
CHUNK_ELEMENTS = 2**22
"""Elements that are hashed at a time, of 8 bytes each."""
MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Those of SplitMix64 (Steele, Lea, Flood 2014), as signed numbers."""


def weight_sums(weights: Iterable[tuple[str, Tensor]]) -> Sums:
    """The sums over all of `weights`."""
    sums: Sums = {}
    for _ in summed(weights, sums):
        pass
    return sums


def summed(weights: Iterable[tuple[str, Tensor]], sums: Sums) -> Iterator[tuple[str, Tensor]]:
    """`weights` as they come, each added to `sums` on the way."""
    for name, tensor in weights:
        layer = next((int(part) for part in name.split(".") if part.isdecimal()), None)
        sums[layer] = (sums.get(layer, 0) + element_sum(tensor)) % 2**64
        yield name, tensor


def element_sum(tensor: Tensor) -> int:
    """The sum over the elements' hashes. That of zero is 0, and the type does not matter where float32 holds it."""
    sums = []
    for part in torch.split(tensor.detach().reshape(-1), CHUNK_ELEMENTS):
        bits = (part.float() + 0.0).view(torch.int32).to(torch.int64)  # minus zero is zero
        for multiplier in MULTIPLIERS:
            bits = bits * multiplier
            bits ^= bits >> 32
        sums.append(bits.sum())
    return int(torch.stack(sums).sum()) % 2**64
