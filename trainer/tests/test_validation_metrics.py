"""verl's metrics of several responses to each prompt of a suite."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.validation_metrics import compute_validation_metrics
from rlt_trainer.evaluation.samples import Samples

NAN = math.nan


def validated(totals: list[float], texts: list[str], *, n: int) -> RolloutBatch:
    prompts = [Prompt(row // n, (1,), "?", "2", "2", "sums") for row in range(len(totals))]
    total = torch.tensor(totals, dtype=torch.float32)
    scores = Scores(total, {"exact": total}, total.isnan(), {})
    return RolloutBatch(prompts, [Response((7,), (-1.0,))] * len(totals), texts, scores, torch.zeros(len(totals)))


def compute(batch: RolloutBatch, n: int, base: RolloutBatch | None = None) -> dict[str, float]:
    return compute_validation_metrics("test", batch, Samples.of(batch, n), Samples.of(base, n) if base else None)


def test_the_names_equal_verls_after_the_suite() -> None:
    texts = ["#### 2", "so #### 2", "#### 3", "4", "3", "3", "\\boxed{3}", "2"]
    metrics = compute(validated([1, 1, 0, 0, 0, 0, 0, 1], texts, n=4), 4)
    assert metrics["val-core/test/sums/reward/mean@4"] == 3 / 8
    assert metrics["val-core/test/sums/reward/best@4/mean"] == pytest.approx(1.0)
    assert metrics["val-aux/test/sums/reward/best@2/mean"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert metrics["val-core/test/sums/reward/maj@4/mean"] == 1 / 2
    assert metrics["val-aux/test/sums/reward/maj@2/mean"] == pytest.approx(3 / 8)


def test_one_response_has_no_metrics_of_several() -> None:
    names = compute(validated([1, 0], ["2", "3"], n=1), 1)
    assert {name for name in names if "@" in name} == {"val-core/test/sums/reward/mean@1"}


def test_metrics_of_all_responses_have_intervals() -> None:
    metrics = compute(validated([1.0, 0.0] * 10 + [0.0, 0.0] * 10, ["2", "3"] * 20, n=2), 2)
    for name in ("mean@2", "best@2", "maj@2"):
        value = metrics[f"val-core/test/sums/reward/{name}" + ("" if name.startswith("mean") else "/mean")]
        low, high = (metrics[f"val-aux/test/sums/reward/{name}/{limit}"] for limit in ("low", "high"))
        assert low < value < high, name
    assert metrics["val/test/reward/low"] < metrics["val/test/reward/mean"] < metrics["val/test/reward/high"]
    assert not [name for name in metrics if "gain" in name]


def test_gains_are_relative_to_the_base() -> None:
    base = validated([0.0, 1.0, 0.0, 0.0] * 5, ["2"] * 20, n=1)
    later = validated([1.0, 1.0, 0.0, 0.0] * 5, ["2"] * 20, n=1)
    metrics = compute(later, 1, base)
    for prefix in ("val/test/reward", "val-aux/test/sums/reward/mean@1"):
        assert metrics[f"{prefix}/gain"] == pytest.approx(0.25)
        assert 0 < metrics[f"{prefix}/gain_low"] < 0.25 < metrics[f"{prefix}/gain_high"]


def test_a_base_of_other_prompts_gives_no_gain() -> None:
    batch = validated([1.0, 0.0] * 10, ["2"] * 20, n=1)
    other = replace(batch, prompts=[replace(prompt, text="!") for prompt in batch.prompts])
    assert not [name for name in compute(batch, 1, other) if "gain" in name]


def test_metrics_are_by_data_source() -> None:
    batch = validated([1.0, 0.0, 0.0, NAN], [""] * 4, n=1)
    sources = ["sums", "gsm8k", "sums", "gsm8k"]
    prompts = [replace(prompt, data_source=source) for prompt, source in zip(batch.prompts, sources, strict=True)]
    by_reward = {"exact": batch.scores.total, "other": torch.tensor([4.0, 1.0, 2.0, 3.0])}
    scores = replace(batch.scores, by_reward=by_reward)
    metrics = compute(replace(batch, prompts=prompts, scores=scores), 1)
    assert metrics["val-core/test/sums/reward/mean@1"] == 0.5
    assert metrics["val-core/test/gsm8k/reward/mean@1"] == 0.0
    assert metrics["val-aux/test/sums/other/mean@1"] == 3.0
    assert metrics["val/test/reward/mean"] == pytest.approx(1 / 3)
    assert metrics["val/test/failed"] == 1.0
