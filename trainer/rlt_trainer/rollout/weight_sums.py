"""Sums over weights, to compare the weights of two processes regardless of their layout.

A sum adds a hash of each element, modulo 2**64. It does not change when weights are fused, transposed or padded with
zeros, and the sums of parts add up. One changed bit of one element changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

Sums = dict[int | None, int]
"""By layer: the first number in the weight's name. None: embedding, output layer and other weights without a number."""
CHUNK_ELEMENTS = 2**22
"""Elements per hashing step, of 8 bytes each."""
MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""The multipliers of SplitMix64 (Steele, Lea, Flood 2014), as signed integers."""


def sum_weights(weights: Iterable[tuple[str, Tensor]]) -> Sums:
    """Compute the sums over all of `weights`."""
    sums: Sums = {}
    for _ in add_sums(weights, sums):
        pass
    return sums


def add_sums(weights: Iterable[tuple[str, Tensor]], sums: Sums) -> Iterator[tuple[str, Tensor]]:
    """Yield `weights` unchanged, and add each of them to `sums`."""
    for name, tensor in weights:
        layer = next((int(part) for part in name.split(".") if part.isdecimal()), None)
        sums[layer] = (sums.get(layer, 0) + sum_elements(tensor)) % 2**64
        yield name, tensor


def sum_elements(tensor: Tensor) -> int:
    """Sum the hashes of all elements, converted to float32. The hash of zero is 0."""
    sums = []
    for part in torch.split(tensor.detach().reshape(-1), CHUNK_ELEMENTS):
        bits = (part.float() + 0.0).view(torch.int32).to(torch.int64)  # -0.0 + 0.0 is +0.0
        for multiplier in MULTIPLIERS:
            bits = bits * multiplier
            bits ^= bits >> 32
        sums.append(bits.sum())
    return int(torch.stack(sums).sum()) % 2**64
