"""The paired differences of two runs have the trainer's intervals, without numpy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from rlt.report.suite_differences import MIN_PROMPTS, compare_suites, compute_tail
from rlt.runs.suite_results import MAX_SCORES_BYTES, read_scores
from rlt_api.spec.suite_scores import SuiteScores
from rlt_trainer.evaluation.bootstrap import find_differences
from rlt_trainer.evaluation.estimates import compute_mean
from rlt_trainer.evaluation.samples import Samples

PROMPTS = 200
N = 4


def simulate(seed: int, gain: float, prompts: int = PROMPTS) -> Samples:
    """Scores of 0 and 1, of which some rewards failed."""
    rates = np.random.default_rng(0).random((prompts, 1))
    generator = np.random.default_rng(seed)
    scores = (generator.random((prompts, N)) < rates + gain * (1 - rates)).astype(np.float64)
    scores[generator.random(scores.shape) < 0.02] = np.nan
    numbers = np.arange(prompts)
    return Samples(numbers, numbers.astype(np.str_), np.full(prompts, "sums"), scores, np.zeros((prompts, N), np.int64))


def test_a_difference_has_the_interval_of_the_trainer() -> None:
    base = simulate(1, 0.0)
    other = simulate(2, 0.2)
    expected = find_differences({"mean": compute_mean(other.scores)}, {"mean": compute_mean(base.scores)})["mean"]
    ((found,),) = compare_suites([{"math": base.summarize(0)}, {"math": other.summarize(5)}]).values()
    assert found
    assert found.prompts == PROMPTS
    assert found.value - found.base == pytest.approx(expected.value)
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.05 * width)


@pytest.mark.parametrize(("prompts", "t"), [(10, 2.2622), (30, 2.0452), (121, 1.9799)])
def test_the_percentiles_are_expanded_for_few_prompts(prompts: int, t: float) -> None:
    """`t` is the 97.5 % quantile of Student's distribution with prompts - 1 degrees of freedom, from a table."""
    assert compute_tail(prompts) == pytest.approx(NormalDist().cdf(-t * math.sqrt(prompts / (prompts - 1))), rel=0.02)


def test_prompts_and_suites_that_one_run_lacks_are_left_out() -> None:
    scores = simulate(1, 0.0).summarize(3)
    few = SuiteScores(step=3, prompts=dict(list(scores.prompts.items())[: MIN_PROMPTS - 1]))
    other = SuiteScores.model_validate({"step": 3, "prompts": {"1-another": [1.0, 1]}})
    found = compare_suites([{"a": scores, "b": scores, "c": scores}, {"a": few, "b": other}, {"a": scores}])
    first, second = found.pop("a")
    assert found == {}
    assert first
    assert (first.prompts, first.low, first.high) == (MIN_PROMPTS - 1, None, None)
    assert second
    assert (second.low, second.high) == (0.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '{"step": 1}',
        '{"step": 1, "prompts": {"a": [1e999, 1]}}',
        '{"step": 1, "prompts": {"a": [1.0, 0]}}',
        "x" * 99,
    ],
)
def test_a_file_that_is_not_the_trainers_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "evaluation/math/scores.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    notes: list[str] = []
    assert read_scores(tmp_path, notes) == {}
    assert notes == ["The scores of a suite cannot be read."]
    file.write_text(json.dumps(simulate(1, 0.0).summarize(7).to_json()))
    assert read_scores(tmp_path, notes)["math"] == simulate(1, 0.0).summarize(7)
    file.write_text(" " * (MAX_SCORES_BYTES + 1))
    assert read_scores(tmp_path, notes) == {}
