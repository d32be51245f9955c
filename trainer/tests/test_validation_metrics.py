"""verl's metrics of several responses to each prompt of the validation set."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.validation_metrics import (
    compute_best,
    compute_majority,
    compute_validation_metrics,
    find_answer,
)

NAN = math.nan


def validated(totals: list[float], texts: list[str], *, n: int) -> RolloutBatch:
    prompts = [Prompt(row // n, (1,), "?", "2", "2", "sums") for row in range(len(totals))]
    total = torch.tensor(totals, dtype=torch.float32)
    scores = Scores(total, {"exact": total}, total.isnan(), {})
    return RolloutBatch(prompts, [Response((7,), (-1.0,))] * len(totals), texts, scores, torch.zeros(len(totals)))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_best_is_the_mean_maximum_over_all_subsets(k: int) -> None:
    scores = [0.25, 1.0, 0.5, 0.0]
    subsets = [max(subset) for subset in combinations(scores, k)]
    assert compute_best(torch.tensor(scores), k) == pytest.approx(sum(subsets) / len(subsets))


def test_best_of_scores_of_0_and_1_is_the_unbiased_pass_rate() -> None:
    n = 10
    correct = 3
    k = 4
    scores = torch.tensor([1.0] * correct + [0.0] * (n - correct))
    assert compute_best(scores, k) == pytest.approx(1 - math.comb(n - correct, k) / math.comb(n, k))


def test_a_failed_reward_is_left_out() -> None:
    assert compute_best(torch.tensor([1.0, NAN]), 1) == 1.0
    assert compute_best(torch.tensor([1.0, NAN]), 2) is None
    assert compute_majority(torch.tensor([NAN, NAN, 1.0]), ["3", "3", "2"]) == 1.0
    assert compute_majority(torch.tensor([NAN]), ["3"]) is None


def test_the_names_equal_verls() -> None:
    texts = ["#### 2", "so #### 2", "#### 3", "4", "3", "3", "\\boxed{3}", "2"]
    metrics = compute_validation_metrics(validated([1, 1, 0, 0, 0, 0, 0, 1], texts, n=4), 4)
    assert metrics["val-core/sums/reward/mean@4"] == 3 / 8
    assert metrics["val-core/sums/reward/best@4/mean"] == 1.0
    assert metrics["val-aux/sums/reward/best@2/mean"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert metrics["val-core/sums/reward/maj@4/mean"] == 1 / 2


def test_one_response_has_no_metrics_of_several() -> None:
    names = compute_validation_metrics(validated([1, 0], ["2", "3"], n=1), 1)
    assert {name for name in names if "@" in name} == {"val-core/sums/reward/mean@1"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [("1\n#### 1,000", "1000"), ("#### 1 or #### 2", "2"), ("it is $\\boxed{x+1}$.", "x+1"), (" 7 ", "7")],
)
def test_the_final_answer_is_found(text: str, answer: str) -> None:
    assert find_answer(text) == answer


def test_metrics_are_by_data_source() -> None:
    batch = validated([1.0, 0.0, 0.0, NAN], [""] * 4, n=1)
    sources = ["sums", "gsm8k", "sums", "gsm8k"]
    prompts = [replace(prompt, data_source=source) for prompt, source in zip(batch.prompts, sources, strict=True)]
    metrics = compute_validation_metrics(replace(batch, prompts=prompts), 1)
    assert metrics["val-core/sums/reward/mean@1"] == 0.5
    assert metrics["val-core/gsm8k/reward/mean@1"] == 0.0
    assert metrics["val/reward/mean"] == pytest.approx(1 / 3)
    assert metrics["val/failed"] == 1.0
