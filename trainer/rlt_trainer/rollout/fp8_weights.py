"""Weights of an engine in FP8, with a scale for each output (rollout.quantization), against the weights sent. Pure."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDING = 2.0**-16
"""Share of half a unit in the last place, for the rounding of the division by the scale in float32."""
CHUNK_ELEMENTS = 2**22
"""Elements per step of the comparison, of 4 bytes in each of a few tensors."""


def count_wrong_elements(weight: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """Count the elements of `weight` that are not rounded to the nearest value in FP8: [], on their device.

    weight: [outputs, inputs], as sent. values: the same in FP8. scales: [outputs, 1]; the engine computes with
    values * scales. The scale itself is the engine's choice: one that is too small saturates, and one that does not
    belong to the values changes every product. All elements are wrong if the shapes differ.
    """
    if values.shape != weight.shape or scales.shape != (len(weight), 1):
        return torch.tensor(weight.numel(), device=weight.device)
    rows = max(1, CHUNK_ELEMENTS // max(1, weight.shape[1]))
    parts = zip(*(torch.split(each, rows) for each in (weight, values, scales)), strict=True)
    return torch.stack([_count_wrong_rows(*part) for part in parts]).sum()


def _count_wrong_rows(weight: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    exact = weight.float() / scales.float()
    given = values.float()
    # Below a power of two the distance of neighbors is half of that above it.
    half = torch.minimum(_half_units(exact, values.dtype), _half_units(given, values.dtype))
    is_near = (given - exact).abs() <= half * (1 + ROUNDING)
    return (~is_near).sum()  # NaN is not near


def _half_units(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half the distance between the neighbors of each number in a format of eight bits.

    Below the smallest normal number the distance stays the same. The largest number has no neighbor above it: a number
    beyond it by more than half a distance is saturated.
    """
    limits = torch.finfo(dtype)
    _, exponent = torch.frexp(numbers.abs().clamp(limits.smallest_normal, limits.max))  # the mantissa is in [0.5, 1)
    return torch.ldexp(torch.full_like(numbers, limits.eps / 2), exponent - 1)
