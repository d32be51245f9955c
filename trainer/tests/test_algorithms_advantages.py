"""Advantages against values computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs, place_at_last_token

MASK = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
GROUPS = torch.tensor([7, 3, 7, 3])
SCORES = torch.tensor([1.0, 3.0, 0.0, 1.0])


def advantages(name: str, scores: Tensor = SCORES, **settings: Any) -> Tensor:
    return ESTIMATORS[name](AdvantageInputs(place_at_last_token(scores, MASK), MASK, GROUPS, **settings)).advantages


def test_a_score_is_placed_at_the_last_token_of_the_policy() -> None:
    mask = torch.tensor([[True, False, True, False], [True, False, False, False], [False, False, False, False]])
    scores = torch.tensor([2.0, 3.0, float("nan")])
    assert place_at_last_token(scores, mask).tolist() == [[0, 0, 2, 0], [3, 0, 0, 0], [0, 0, 0, 0]]


def test_inputs_outside_the_mask_are_0() -> None:
    nan = torch.full((4, 2), float("nan"))
    inputs = AdvantageInputs(nan, MASK, GROUPS, values=nan)
    assert inputs.values is not None
    assert inputs.token_rewards[2, 1] == inputs.values[2, 1] == 0


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        # groups (1, 0) and (3, 1): means 0.5 and 2, deviations sqrt(1/2) and sqrt(2), each over n - 1 = 1
        ("grpo", {}, [0.5 / 0.5**0.5, 1 / 2**0.5, -0.5 / 0.5**0.5, -1 / 2**0.5]),
        ("grpo", {"norm_by_std": False}, [0.5, 1.0, -0.5, -1.0]),
        ("rloo", {}, [1.0, 2.0, -1.0, -2.0]),
        # lengths (2, 1) and (2, 2): baselines 2/3 and 2
        ("opo", {}, [1 / 3, 1.0, -2 / 3, -1.0]),
        ("grpo_passk", {"norm_by_std": False}, [1.0, 2.0, 0.0, 0.0]),
        ("remax", {"baselines": torch.tensor([0.5, 1.0, 0.5, 1.0])}, [0.5, 2.0, -0.5, 0.0]),
    ],
)
def test_every_token_of_a_response_has_the_same_advantage_and_padding_has_0(
    name: str, settings: dict[str, Any], expected: list[float]
) -> None:
    result = advantages(name, **settings)
    assert_close(result[:, 0], torch.tensor(expected), atol=1e-5, rtol=0)
    assert_close(result[:, 1], torch.tensor(expected).where(MASK[:, 1], 0), atol=1e-5, rtol=0)


def test_gae_with_lambda_0_is_the_whitened_one_step_error() -> None:
    rewards = torch.tensor([[0.0, 1.0]])
    values = torch.tensor([[0.25, 0.5]])
    inputs = AdvantageInputs(rewards, torch.ones(1, 2).bool(), torch.zeros(1).long(), values, lam=0.0)
    result = ESTIMATORS["gae"](inputs)
    assert_close(result.returns, torch.tensor([[0.5, 1.0]]))  # errors 0.25 and 0.5, plus the values
    assert_close(result.advantages, torch.tensor([[-(0.5**0.5), 0.5**0.5]]), atol=1e-5, rtol=0)


def test_reinforce_plus_plus_discounts_later_rewards() -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0]])
    inputs = AdvantageInputs(rewards, torch.ones(1, 3).bool(), torch.zeros(1).long(), gamma=0.5)
    assert_close(ESTIMATORS["reinforce_plus_plus"](inputs).returns, torch.tensor([[0.25, 0.5, 1.0]]))


@pytest.mark.parametrize("name", ["grpo", "rloo", "opo", "grpo_passk"])
def test_equal_scores_have_advantage_0(name: str) -> None:
    assert not advantages(name, torch.full((4,), 0.1)).any()


@pytest.mark.parametrize("convention", ["verl", "trl"])
def test_grpo_passk_has_advantage_0_in_a_group_of_one(convention: Any) -> None:
    alone = torch.tensor([0, 1, 2, 3])
    inputs = AdvantageInputs(place_at_last_token(SCORES, MASK), MASK, alone, convention=convention)
    assert not ESTIMATORS["grpo_passk"](inputs).advantages.any()
