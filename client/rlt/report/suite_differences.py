"""The paired difference between the scores of two runs on a suite, with its confidence interval. Pure.

It is the interval of the trainer (rlt_trainer.evaluation.bootstrap) for the mean score, without numpy.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from rlt_api.spec.suite_scores import SuiteScores

LEVEL = 0.95
RESAMPLES = 1000
MIN_PROMPTS = 10
"""Fewer common prompts have no interval."""


@dataclass(frozen=True)
class SuiteDifference:
    """Mean scores over the prompts that two runs have in common, and their difference."""

    prompts: int
    base: float
    value: float
    low: float | None
    """The interval of `value - base`. None: fewer than MIN_PROMPTS prompts."""
    high: float | None


def compare_suites(
    runs: Sequence[Mapping[str, SuiteScores]],
) -> dict[str, tuple[SuiteDifference | None, ...]]:
    """The differences of each run to the first one, by suite. None: the runs have no common prompt in the suite.

    A suite in which no run can be compared is left out.
    """
    base, *others = runs
    found = {name: tuple(_compare(scores, other.get(name)) for other in others) for name, scores in base.items()}
    return {name: differences for name, differences in found.items() if any(differences)}


def _compare(base: SuiteScores, other: SuiteScores | None) -> SuiteDifference | None:
    pairs = (
        [(base.prompts[key], scores) for key, scores in other.prompts.items() if key in base.prompts] if other else []
    )
    if not pairs:
        return None
    columns = [
        [float(part) for part in column] for column in zip(*(start + scores for start, scores in pairs), strict=True)
    ]
    means = _divide([sum(column) for column in columns])
    low, high = _find_limits(columns) if len(pairs) >= MIN_PROMPTS else (None, None)
    return SuiteDifference(len(pairs), *means, low, high)


def _find_limits(columns: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The limits of the difference, from sums and counts of the base and of the other run: [4, P].

    Both are drawn with the same prompts. The seed is constant.
    """
    generator = random.Random(0)
    prompts = len(columns[0])
    draws = []
    for _ in range(RESAMPLES):
        take = itemgetter(*generator.choices(range(prompts), k=prompts))
        base, value = _divide([sum(take(column)) for column in columns])
        draws.append(value - base)
    tail = compute_tail(prompts)
    draws.sort()
    return _interpolate(draws, tail), _interpolate(draws, 1 - tail)


def compute_tail(prompts: int) -> float:
    """The expanded percentile of the lower limit, from Student's t: as in rlt_trainer.evaluation.bootstrap."""
    normal = statistics.NormalDist()
    z = normal.inv_cdf(1 - (1 - LEVEL) / 2)
    freedom = prompts - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return normal.cdf(-t * math.sqrt(prompts / freedom))


def _divide(totals: Sequence[float]) -> tuple[float, float]:
    sums, counts, other_sums, other_counts = totals
    return sums / counts, other_sums / other_counts


def _interpolate(ordered: Sequence[float], share: float) -> float:
    """The quantile, linear between two values as in numpy."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
