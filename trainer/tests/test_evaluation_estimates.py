"""best@k and maj@k against their definitions, over all subsets of k responses."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from rlt_trainer.evaluation import estimates
from rlt_trainer.evaluation.estimates import compute_best, compute_majority, compute_mean, list_sizes

NAN = math.nan


def row(*values: float) -> NDArray[np.float64]:
    return np.array([values], dtype=np.float64)


@pytest.mark.parametrize(("n", "sizes"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6])])
def test_the_sizes_equal_verls(n: int, sizes: list[int]) -> None:
    assert list_sizes(n) == sizes


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_best_is_the_mean_maximum_over_all_subsets(k: int) -> None:
    scores = [0.25, 1.0, 0.5, 0.0]
    subsets = [max(subset) for subset in combinations(scores, k)]
    assert compute_best(row(*scores), k).value == pytest.approx(sum(subsets) / len(subsets))


@pytest.mark.parametrize("k", [1, 4, 8, 10])
def test_best_of_scores_of_0_and_1_is_the_unbiased_pass_rate(k: int) -> None:
    n = 10
    correct = 3
    scores = row(*[1.0] * correct, *[0.0] * (n - correct))
    assert compute_best(scores, k).value == pytest.approx(1 - math.comb(n - correct, k) / math.comb(n, k))


def test_best_of_many_responses_stays_finite() -> None:
    assert compute_best(np.tile([0.0, 1.0], (2, 2048)), 2048).value == pytest.approx(1.0)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_majority_is_the_mean_over_all_subsets(k: int) -> None:
    scores = [1.0, 0.0, 0.5, 1.0, 0.25]
    answers = [0, 1, 1, 0, 4]

    def majority(subset: tuple[int, ...]) -> float:
        counts = Counter(answers[each] for each in subset)
        winners = [answer for answer, count in counts.items() if count == max(counts.values())]
        means = [np.mean([scores[each] for each in subset if answers[each] == answer]) for answer in winners]
        return float(np.mean(means))

    expected = np.mean([majority(subset) for subset in combinations(range(5), k)])
    assert compute_majority(row(*scores), np.array([answers]), k).value == pytest.approx(expected)


def test_majority_over_drawn_subsets_is_near_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = (np.arange(12) % 3 == 0).astype(np.float64)[None]
    answers = (np.arange(12) % 3)[None]
    monkeypatch.setattr(estimates, "MAX_SUBSETS", math.comb(12, 4))
    exact = compute_majority(scores, answers, 4).value
    monkeypatch.setattr(estimates, "MAX_SUBSETS", 400)
    estimates._list_subsets.cache_clear()
    drawn = compute_majority(scores, answers, 4).value
    assert 0 < abs(drawn - exact) < 0.05  # the standard error is 0.02


def test_a_failed_reward_is_left_out() -> None:
    assert compute_mean(row(1.0, NAN)).value == 1.0
    assert compute_best(row(1.0, NAN), 1).value == 1.0
    assert math.isnan(compute_best(row(1.0, NAN), 2).value)
    assert compute_majority(row(NAN, NAN, 1.0), np.array([[0, 0, 2]]), 1).value == 1.0
    assert math.isnan(compute_majority(row(NAN, 1.0), np.array([[0, 0]]), 2).value)


def test_a_prompt_without_enough_scores_is_left_out_of_the_mean() -> None:
    scores = np.array([[1.0, 0.0], [NAN, 0.0]])
    assert compute_best(scores, 2).value == 1.0
    assert compute_mean(scores).value == pytest.approx(1 / 3)
