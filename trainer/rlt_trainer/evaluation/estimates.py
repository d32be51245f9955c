"""Estimates from n responses to each prompt: mean, best@k (pass@k) and maj@k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from rlt_trainer.evaluation.samples import Samples

MAX_SUBSETS = 1024
"""Maximum number of subsets of k responses over which maj@k is averaged. Of more, as many are drawn."""


@dataclass(frozen=True)
class Estimate:
    """A metric over P prompts, as the parts of its mean. A prompt without a value has count 0."""

    sums: NDArray[np.float64]
    """[P]"""
    counts: NDArray[np.float64]
    """[P]"""

    @property
    def value(self) -> float:
        """The mean. NaN without any value."""
        total = self.counts.sum()
        return float(self.sums.sum() / total) if total else np.nan


def list_sizes(n: int) -> list[int]:
    """Return the sizes k of verl's metrics of several responses: the powers of 2 below n, and n. None for n = 1."""
    return [2**power for power in range(1, n.bit_length()) if 2**power < n] + [n] * (n > 1)


def compute_estimates(samples: Samples, sizes: Sequence[int]) -> dict[str, Estimate]:
    """Compute "mean", and "best@k" and "maj@k" for each size k. Estimates without any value are left out.

    A response whose reward failed is left out. best@k and maj@k need k scored responses to a prompt.
    """
    estimates = {"mean": compute_mean(samples.scores)}
    for k in sizes:
        estimates[f"best@{k}"] = compute_best(samples.scores, k)
        estimates[f"maj@{k}"] = compute_majority(samples.scores, samples.answers, k)
    return {name: estimate for name, estimate in estimates.items() if estimate.counts.any()}


def compute_mean(scores: NDArray[np.float64]) -> Estimate:
    """The mean of all scores [P, n]: avg@n."""
    return Estimate(np.nansum(scores, axis=1), np.isfinite(scores).sum(axis=1).astype(np.float64))


def compute_best(scores: NDArray[np.float64], k: int) -> Estimate:
    """The expected maximum of k scores of a prompt, drawn from [P, n] without replacement.

    For scores of 0 and 1 it is the unbiased pass@k of Chen et al. 2021 (arXiv 2107.03374), 1 - C(n-c, k) / C(n, k).
    verl draws with replacement, which is biased.
    """
    ordered = np.sort(scores, axis=1)  # NaN comes last
    known = np.isfinite(scores).sum(axis=1)
    sizes, row_of = np.unique(known, return_inverse=True)
    weights = np.zeros((len(sizes), scores.shape[1]))
    for row, size in enumerate(sizes.tolist()):
        if size >= k:
            # The share of subsets whose maximum is the score above `below` others: C(below, k-1) / C(size, k).
            shrink = 1 - (k - 1) / np.arange(size - 1, 0, -1)
            weights[row, :size] = np.cumprod([k / size, *shrink])[::-1]
    sums = (weights[row_of] * np.nan_to_num(ordered)).sum(axis=1)
    return Estimate(sums, (known >= k).astype(np.float64))


def compute_majority(scores: NDArray[np.float64], answers: NDArray[np.int64], k: int) -> Estimate:
    """The expected score of the most frequent answer among k responses, drawn from [P, n] without replacement.

    Equally frequent answers count the same, and the responses with an answer have their mean score. verl's maj@k
    (process_validation_metrics) draws with replacement, and takes the first response with the first of these answers.
    """
    known = np.isfinite(scores)
    values = [
        _find_majority(row[mask], votes[mask], k) if mask.sum() >= k else 0.0
        for row, votes, mask in zip(scores, answers, known, strict=True)
    ]
    return Estimate(np.array(values, dtype=np.float64), (known.sum(axis=1) >= k).astype(np.float64))


def _find_majority(scores: NDArray[np.float64], answers: NDArray[np.int64], k: int) -> float:
    """The expected score of the majority for one prompt, from scores and answers [m]."""
    numbers, votes = np.unique(answers, return_inverse=True)
    subsets = _list_subsets(len(scores), k)
    shape = (len(subsets), len(numbers))
    cells = (votes[subsets] + np.arange(len(subsets))[:, None] * len(numbers)).ravel()
    size = len(subsets) * len(numbers)
    counts = np.bincount(cells, minlength=size).reshape(shape)
    sums = np.bincount(cells, weights=scores[subsets].ravel(), minlength=size).reshape(shape)
    winners = counts == counts.max(axis=1, keepdims=True)
    means = sums / np.maximum(counts, 1)
    return float(((winners * means).sum(axis=1) / winners.sum(axis=1)).mean())


@lru_cache(maxsize=32)
def _list_subsets(m: int, k: int) -> NDArray[np.int64]:
    """Subsets of k of m numbers: [S, k]. All of them, or MAX_SUBSETS that are drawn with the same seed each time."""
    if comb(m, k) <= MAX_SUBSETS:
        return np.array(list(combinations(range(m), k)), dtype=np.int64)
    keys = np.random.default_rng(0).random((MAX_SUBSETS, m))
    return np.argpartition(keys, k, axis=1)[:, :k]
