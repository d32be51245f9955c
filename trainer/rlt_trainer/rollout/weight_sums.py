"""Sums over weights, to compare the weights of two processes regardless of their layout.

A sum adds a hash of each element, modulo 2**64. It does not change when weights are fused, transposed or padded with
zeros, and the sums of parts add up. One changed bit of one element changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

Sums = dict[str, int]
"""By part of the model: a layer, an expert of a layer, or OTHERS."""
OTHERS = "embedding, output layer or norm"
"""The weights without a number in their name."""
EXPERTS = "experts"
"""The word in the names of transformers and vLLM before the number of an expert, or of the stack of all experts."""
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
        for part, value in split_parts(name, tensor):
            sums[part] = (sums.get(part, 0) + sum_elements(value)) % 2**64
        yield name, tensor


def add_up(parts: Iterable[Sums]) -> Sums:
    """Add up the sums over parts of the weights, such as those of one device."""
    total: Sums = {}
    for sums in parts:
        for part, value in sums.items():
            total[part] = (total.get(part, 0) + value) % 2**64
    return total


def split_parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the parts of the model that a weight belongs to, with its values.

    A stack of experts [experts, ...] is split: the engine may have a stack where the files have single experts.
    """
    words = name.split(".")
    layer = next((word for word in words if word.isdecimal()), None)
    if layer is None:
        yield OTHERS, tensor
        return
    after = words[words.index(EXPERTS) + 1 :] if EXPERTS in words else []
    number = next((word for word in after if word.isdecimal()), None)
    if number is not None:
        yield f"layer {layer}, expert {number}", tensor
    elif after and tensor.ndim > 1:
        for expert, values in enumerate(tensor):
            yield f"layer {layer}, expert {expert}", values
    else:
        yield f"layer {layer}", tensor


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
