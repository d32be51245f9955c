"""The nearest right value, for the fix of a finding."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

FACTORED = 50_000
"""Divisors are looked for up to here: a fix is to be found within milliseconds."""


def multiples_around(value: int, of: int) -> list[int]:
    """The multiples of `of` next to `value`, not 0: 100, 32 -> [96, 128]."""
    below = value // of * of
    return [each for each in (below, below + of) if each and each != value]


def divisors_around(value: int, number: int, *, multiple_of: int = 1) -> list[int]:
    """The divisors of `number` next to `value` that are multiples of `multiple_of`: 12, 32 -> [8, 16].

    Of numbers beyond FACTORED ** 2 not all are looked at.
    """
    low = [each for each in range(1, min(isqrt(number), FACTORED) + 1) if number % each == 0]
    fitting = sorted({each for pair in low for each in (pair, number // pair) if each % multiple_of == 0})
    below = [each for each in fitting if each < value][-1:]
    return [*below, *[each for each in fitting if each > value][:1]]


def either(values: Iterable[int]) -> str:
    """ "96 or 128"."""
    return " or ".join(map(str, values))
