"""Advantages against numbers worked out by hand."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from rlt_trainer.algorithms.advantages import grpo_advantages

MASK = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
REWARDS = torch.tensor([1.0, 0.0, 3.0, 1.0])


def test_a_group_is_centred_and_divided_by_its_unbiased_deviation() -> None:
    advantages = grpo_advantages(REWARDS, MASK, group_size=2, norm_by_std=True)
    # groups (1, 0) and (3, 1): means 0.5 and 2, deviations sqrt(1/2) and sqrt(2), each over n - 1 = 1
    expected = torch.tensor([0.5 / 0.5**0.5, -0.5 / 0.5**0.5, 1 / 2**0.5, -1 / 2**0.5])
    assert_close(advantages[:, 0], expected, atol=1e-5, rtol=0)


def test_without_the_deviation_only_the_mean_is_taken_off() -> None:
    advantages = grpo_advantages(REWARDS, MASK, group_size=2, norm_by_std=False)
    assert_close(advantages[:, 0], torch.tensor([0.5, -0.5, 1.0, -1.0]))


def test_every_token_of_a_response_has_its_advantage_and_padding_none() -> None:
    advantages = grpo_advantages(REWARDS, MASK, group_size=2, norm_by_std=False)
    assert advantages.tolist() == [[0.5, 0.5], [-0.5, 0.0], [1.0, 1.0], [-1.0, -1.0]]


def test_equal_rewards_have_no_advantage() -> None:
    assert not grpo_advantages(torch.full((4,), 0.7), MASK, group_size=4, norm_by_std=True).any()
