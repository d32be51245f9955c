"""The intervals cover the true value as often as they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlt_trainer.evaluation.bootstrap import MIN_PROMPTS, Interval, find_differences, find_intervals
from rlt_trainer.evaluation.estimates import Estimate, compute_best, compute_majority, compute_mean

SEEDS = 1000
PROMPTS = 64
N = 4
SHAPE = (0.5, 1.0)
"""The prompts' pass rates have this beta distribution, which is far from normal."""
GAIN = 0.2
"""The share of its failures that a prompt loses between base and current."""


def coverage(intervals: list[Interval], true: float) -> float:
    return sum(each.low <= true <= each.high for each in intervals) / len(intervals)


def test_the_intervals_cover_the_true_value_in_95_percent_of_1000_seeds() -> None:
    found: dict[str, list[Interval]] = {"mean": [], "best": [], "maj": [], "difference": []}
    for seed in range(SEEDS):
        generator = np.random.default_rng(seed)
        rates = generator.beta(*SHAPE, size=(PROMPTS, 1))
        base = (generator.random((PROMPTS, N)) < rates).astype(np.float64)
        current = (generator.random((PROMPTS, N)) < rates + GAIN * (1 - rates)).astype(np.float64)
        mean = {"mean": compute_mean(base)}
        answers = np.where(base == 1, 0, generator.integers(1, 3, size=base.shape))  # two wrong ones
        intervals = find_intervals({**mean, "best": compute_best(base, 2), "maj": compute_majority(base, answers, 3)})
        intervals["difference"] = find_differences({"mean": compute_mean(current)}, mean)["mean"]
        for name, interval in intervals.items():
            found[name].append(interval)
    a, b = SHAPE
    rate = a / (a + b)
    square = rate * (a + 1) / (a + b + 1)
    cube = square * (a + 2) / (a + b + 2)
    # maj@3: three or two correct answers, or a third of the cases in which all three differ
    majority = cube + 3 * (square - cube) + (rate - 2 * square + cube) / 2
    true = {"mean": rate, "best": 2 * rate - square, "maj": majority, "difference": GAIN * (1 - rate)}
    assert {name: coverage(found[name], true[name]) for name in found} == pytest.approx(
        dict.fromkeys(found, 0.95), abs=0.02
    )


def test_a_paired_difference_is_narrower_than_the_intervals_of_both() -> None:
    generator = np.random.default_rng(0)
    rates = generator.random((PROMPTS, 1))
    base = (generator.random((PROMPTS, 64)) < rates).astype(np.float64)
    current = (generator.random((PROMPTS, 64)) < rates * 0.9).astype(np.float64)
    estimates = {"mean": compute_mean(current)}
    start = {"mean": compute_mean(base)}
    difference = find_differences(estimates, start)["mean"]
    alone = [find_intervals(each)["mean"] for each in (estimates, start)]
    unpaired = math.hypot(*(each.high - each.low for each in alone))
    assert difference.high - difference.low < unpaired / 3
    assert difference.high < 0  # found, although the intervals of both overlap
    assert alone[0].high > alone[1].low
    assert difference.value == pytest.approx(alone[0].value - alone[1].value)


def test_an_interval_is_the_same_again() -> None:
    estimate = {"mean": compute_mean(np.random.default_rng(0).random((PROMPTS, N)))}
    assert find_intervals(estimate) == find_intervals(estimate)


def test_equal_scores_have_an_interval_of_width_0() -> None:
    assert find_intervals({"mean": compute_mean(np.ones((PROMPTS, N)))})["mean"] == Interval(1.0, 1.0, 1.0)


def test_few_prompts_have_no_interval() -> None:
    few = {"mean": compute_mean(np.ones((MIN_PROMPTS - 1, N)))}
    assert find_intervals(few) == find_differences(few, few) == {}


def test_prompts_without_a_value_do_not_count() -> None:
    scores = np.random.default_rng(0).random((PROMPTS, N))
    known = compute_mean(scores)
    rest = np.zeros(PROMPTS)
    half = Estimate(np.concatenate([known.sums, rest]), np.concatenate([known.counts, rest]))
    alone = find_intervals({"mean": known})["mean"]
    among = find_intervals({"mean": half})["mean"]
    assert among.value == alone.value
    assert among.high - among.low == pytest.approx(alone.high - alone.low, rel=0.15)
