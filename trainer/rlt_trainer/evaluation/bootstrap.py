"""Confidence intervals by resampling prompts (Efron and Tibshirani 1993, An Introduction to the Bootstrap)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rlt_trainer.evaluation.estimates import Estimate

LEVEL = 0.95
RESAMPLES = 1000
MIN_PROMPTS = 10
"""Fewer prompts have no interval: their resamples do not show what other prompts would score."""
_CELLS = 2**20
"""Maximum number of prompts in the resamples of one block, if it has more than one resample."""


@dataclass(frozen=True)
class Interval:
    """A value and its two-sided confidence interval."""

    value: float
    low: float
    high: float


def find_intervals(estimates: Mapping[str, Estimate]) -> dict[str, Interval]:
    """Return the interval of each estimate, by its name. Estimates with fewer than MIN_PROMPTS prompts are left out."""
    found = {name: estimate for name, estimate in estimates.items() if _count(estimate) >= MIN_PROMPTS}
    draws = _resample(list(found.values()))
    return {
        name: Interval(estimate.value, *_find_limits(values, _count(estimate)))
        for (name, estimate), values in zip(found.items(), draws, strict=True)
    }


def find_differences(estimates: Mapping[str, Estimate], base: Mapping[str, Estimate]) -> dict[str, Interval]:
    """Return the interval of each estimate minus the one with the same name in `base`, over the same P prompts.

    The differences are paired: both are resampled with the same prompts, so that the difficulty of a prompt, which
    they share, cancels out.
    """
    found = {
        name: (estimate, base[name])
        for name, estimate in estimates.items()
        if name in base and min(_count(estimate), _count(base[name])) >= MIN_PROMPTS
    }
    draws = _resample([each for pair in found.values() for each in pair])
    return {
        name: Interval(
            estimate.value - start.value,
            *_find_limits(draws[2 * row] - draws[2 * row + 1], min(_count(estimate), _count(start))),
        )
        for row, (name, (estimate, start)) in enumerate(found.items())
    }


def _count(estimate: Estimate) -> int:
    """The number of prompts with a value."""
    return int((estimate.counts > 0).sum())


def _resample(estimates: list[Estimate]) -> NDArray[np.float64]:
    """Compute M estimates over the same P prompts for prompts that are drawn with replacement: [M, RESAMPLES].

    The seed is constant. NaN: a resample has no prompt with a value.
    """
    if not estimates:
        return np.empty((0, RESAMPLES))
    prompts = len(estimates[0].sums)
    parts = np.stack([part for each in estimates for part in (each.sums, each.counts)], axis=1)
    rows = max(1, _CELLS // prompts)
    totals = [_draw_times(prompts, min(rows, RESAMPLES - start), start) @ parts for start in range(0, RESAMPLES, rows)]
    sums, counts = np.concatenate(totals).T.reshape(len(estimates), 2, RESAMPLES).swapaxes(0, 1)
    with np.errstate(invalid="ignore"):
        ratios: NDArray[np.float64] = sums / counts
    return ratios


@lru_cache(maxsize=4)
def _draw_times(prompts: int, resamples: int, seed: int) -> NDArray[np.float64]:
    """Draw prompts with replacement. Return the number of times of each prompt: [resamples, prompts]."""
    drawn = np.random.default_rng(seed).integers(prompts, size=(resamples, prompts))
    cells = drawn + np.arange(resamples)[:, None] * prompts
    times = np.bincount(cells.ravel(), minlength=resamples * prompts)
    return times.reshape(resamples, prompts).astype(np.float64)


def _find_limits(draws: NDArray[np.float64], prompts: int) -> tuple[float, float]:
    """Return the limits of the expanded percentile interval.

    The percentile interval is too narrow for few prompts. Hesterberg 2015 (arXiv 1411.5279) takes wider percentiles,
    from Student's t. Its quantile is Abramowitz and Stegun's 26.7.5.
    """
    normal = NormalDist()
    z = normal.inv_cdf(1 - (1 - LEVEL) / 2)
    freedom = prompts - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    tail = normal.cdf(-t * math.sqrt(prompts / freedom))
    low, high = np.nanquantile(draws, [tail, 1 - tail]).tolist()
    return low, high
