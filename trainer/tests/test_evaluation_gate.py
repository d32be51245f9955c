"""A gate passes, fails, or is unknown, by the figures of a suite after the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from rlt_api.blocks.evaluation import Evaluation, PromoteIf
from rlt_trainer.driver.gates import judge_suites
from rlt_trainer.evaluation.bootstrap import find_differences
from rlt_trainer.evaluation.estimates import compute_mean
from rlt_trainer.evaluation.gate import judge
from rlt_trainer.evaluation.samples import Samples

PROMPTS = 40


def samples(scores: ArrayLike, *, first: int = 0) -> Samples:
    """Return samples of scores [P, n]. `first`: the number of the first prompt."""
    values = np.asarray(scores, dtype=np.float64)
    indices = np.arange(first, first + len(values))
    answers = np.where(np.isfinite(values), values, 2).astype(np.int64)
    return Samples(indices, indices.astype(np.str_), np.full(len(values), "sums"), values, answers)


def rate(passing: int, *, n: int = 1) -> Samples:
    """Return samples of which the first `passing` prompts have score 1, and the others 0."""
    return samples(np.repeat(np.arange(PROMPTS)[:, None] < passing, n, axis=1))


@pytest.mark.parametrize(
    ("limits", "before", "after", "passed"),
    [
        ({"gain_above": 0.0}, 10, 20, True),
        ({"gain_above": 0.0}, 20, 20, False),
        ({"gain_above": 0.0}, 20, 21, False),  # the interval of one prompt in 40 has 0
        ({"gain_above": -0.2}, 20, 19, True),
        ({"gain_above": -0.2}, 20, 10, False),
        ({"minimum": 0.5}, 0, 20, True),
        ({"minimum": 0.51}, 0, 20, False),
        ({"gain_above": 0.0, "minimum": 0.75}, 10, 20, False),
        ({"gain_above": 0.0, "minimum": 0.75}, 30, 30, False),
        ({"gain_above": 0.0, "minimum": 0.5}, 10, 20, True),
    ],
)
def test_both_limits_apply(limits: dict[str, float], before: int, after: int, passed: bool) -> None:
    assert judge(PromoteIf.model_validate(limits), rate(after), rate(before)).passed is passed


def test_the_evidence_has_the_figures_of_a_comparison() -> None:
    gate = judge(PromoteIf(gain_above=0, minimum=0.25), rate(20), rate(10))
    difference = find_differences({"mean": compute_mean(rate(20).scores)}, {"mean": compute_mean(rate(10).scores)})
    assert (gate.metric, gate.value, gate.gain) == ("mean", 0.5, difference["mean"])
    assert gate.evidence == (
        f"mean 0.5000, minimum 0.25, gain +0.2500 (95% interval {difference['mean'].low:+.4f} to "
        f"{difference['mean'].high:+.4f}), gainAbove 0"
    )


def test_best_and_maj_count_all_responses_of_a_prompt() -> None:
    third = samples([[1.0, 0.0, 0.0]] * PROMPTS)
    values = {metric: judge(PromoteIf(metric=metric, minimum=0.5), third, None) for metric in ("mean", "best", "maj")}
    assert {metric: (gate.metric, gate.value, gate.passed) for metric, gate in values.items()} == {
        "mean": ("mean", pytest.approx(1 / 3), False),
        "best": ("best@3", 1.0, True),
        "maj": ("maj@3", 0.0, False),
    }


@pytest.mark.parametrize(
    ("promote_if", "current", "base", "evidence"),
    [
        ({"gainAbove": 0}, rate(20), samples(np.zeros((9, 1))), "fewer than 10 prompts of the suite are in the base"),
        ({"gainAbove": 0}, rate(20), samples(np.zeros((40, 1)), first=31), "fewer than 10 prompts"),
        ({"minimum": 0}, samples([[1.0]] * 36 + [[np.nan]] * 4), None, "10% of the suite has no value of mean"),
        ({"gainAbove": 0}, rate(20), samples([[1.0]] * 36 + [[np.nan]] * 4), "10% of the base has no value"),
        ({"minimum": 0}, samples(np.full((40, 1), np.nan)), None, "100% of the suite"),
        (
            {"metric": "best", "minimum": 0},
            samples([[1.0] * 40] * 36 + [[1.0] * 39 + [np.nan]] * 4),
            None,
            "10% of the suite has no value of best@40",
        ),
    ],
)
def test_a_gate_without_its_figures_is_unknown(
    promote_if: dict[str, Any], current: Samples, base: Samples | None, evidence: str
) -> None:
    gate = judge(PromoteIf.model_validate(promote_if), current, base)
    assert gate.passed is None
    assert evidence in gate.evidence


def test_a_few_missing_scores_are_left_out() -> None:
    gate = judge(PromoteIf(minimum=1.0), samples([[1.0]] * 39 + [[np.nan]]), None)
    assert (gate.value, gate.passed) == (1.0, True)


def test_a_gate_whose_files_are_missing_or_damaged_is_unknown(tmp_path: Path) -> None:
    names = ("missing", "damaged", "none")
    suites = [Evaluation(name=name, every=1, promote_if=PromoteIf(minimum=0.5)) for name in names[:2]]
    file = tmp_path / "evaluation/damaged/step-3.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"damaged")
    gates = judge_suites(tmp_path, [*suites, Evaluation(name="none", every=1)], 3)
    assert {name: gate.passed for name, gate in gates.items()} == {"missing": None, "damaged": None}
    assert gates["missing"].evidence == f"{tmp_path}/evaluation/missing/step-3.parquet: no such file."
    assert gates["damaged"].evidence.startswith(f"{file}: cannot be read")
