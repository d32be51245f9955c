"""The nearest valid values of a size, for the fix of a finding."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

MAX_DIVISOR = 50_000
"""Limit of the search for divisors, so that a fix is found within milliseconds."""


def nearest_multiples(value: int, of: int) -> list[int]:
    """Return the multiples of `of` next to `value`, without 0: 100, 32 -> [96, 128]."""
    below = value // of * of
    return [each for each in (below, below + of) if each and each != value]


def nearest_divisors(value: int, number: int, *, multiple_of: int = 1) -> list[int]:
    """Return the divisors of `number` next to `value` that are multiples of `multiple_of`: 12, 32 -> [8, 16].

    For numbers above MAX_DIVISOR ** 2 the search is incomplete.
    """
    low = [each for each in range(1, min(isqrt(number), MAX_DIVISOR) + 1) if number % each == 0]
    fitting = sorted({each for pair in low for each in (pair, number // pair) if each % multiple_of == 0})
    below = [each for each in fitting if each < value][-1:]
    return [*below, *[each for each in fitting if each > value][:1]]


def join_or(values: Iterable[object]) -> str:
    """Join values for a message: "96 or 128"."""
    return " or ".join(map(str, values))
