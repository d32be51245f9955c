"""Measurements of several functions in turns, so that other programs of the machine slow all of them down alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Seconds of two functions, each in turn."""

    ours: list[float]
    other: list[float]

    @property
    def ratio(self) -> float:
        """The median of neighbors' ratios."""
        return statistics.median(ours / other for ours, other in zip(self.ours, self.other, strict=True))

    def __str__(self) -> str:
        ours = statistics.median(self.ours)
        other = statistics.median(self.other)
        return f"{self.ratio:.2f} x ({ours:.3g} and {other:.3g} s)"


def compare(
    ours: Callable[[], object],
    other: Callable[[], object],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    before: Callable[[], object] = lambda: None,
) -> Times:
    """Call both functions `rounds` times in turns, after one call of each that is not counted.

    before: called before both functions. Its time is not counted.
    """
    times = Times([], [])
    for number in range(rounds + 1):
        for function, seconds in ((ours, times.ours), (other, times.other)):
            before()
            start = clock()
            function()
            if number > 0:
                seconds.append(clock() - start)
    return times
