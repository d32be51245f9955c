"""Reward shaping, the KL term in the reward, and the rollout correction."""

from __future__ import annotations

import math

import pytest
import torch

from rlt_trainer.algorithms.kl_controller import KlController, apply_kl_penalty
from rlt_trainer.algorithms.rollout_correction import correct_rollout
from rlt_trainer.algorithms.shaping import compute_overlong_penalty, filter_groups


def test_the_overlong_penalty_grows_linearly_within_its_buffer() -> None:
    lengths = torch.tensor([10, 80, 85, 100])
    penalty = compute_overlong_penalty(lengths, max_response_length=100, buffer_length=20, penalty_factor=2.0)
    assert penalty.tolist() == [0.0, 0.0, -0.5, -2.0]


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([1.0, 0.0, 1.0], True),
        ([1.0, 1.0, 1.0], False),
        ([0.1, 0.1, 0.1], False),
        ([1.0, math.nan, 1.0], False),
        ([1.0, math.nan, 0.0], True),
        ([math.nan, math.nan], False),
        ([0.0], True),
        ([math.nan], False),
    ],
)
def test_groups_whose_scores_differ_are_kept(scores: list[float], kept: bool) -> None:
    # interleaved with another group, which is kept
    metric = torch.tensor([5.0, *scores, 6.0])
    groups = torch.tensor([9, *[-2] * len(scores), 9])
    assert filter_groups(metric, groups).tolist() == [True, *[kept] * len(scores), True]


def test_the_kl_term_is_subtracted_from_token_rewards() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    rewards = torch.tensor([[0.0, 1.0, 0.0]] * 2)
    reference = torch.full((2, 3), -1.5)
    log_probs = torch.tensor([[-1.0, -0.5, math.nan]] * 2)
    penalty = apply_kl_penalty(rewards, log_probs=log_probs, ref_log_probs=reference, mask=mask, coefficient=0.1)
    torch.testing.assert_close(penalty.token_rewards, torch.tensor([[-0.05, 0.9, 0.0], [0.0, 0.0, 0.0]]))
    assert penalty.kl == 0.75  # of the one response that has tokens


def test_a_fixed_coefficient_is_constant_and_an_adaptive_one_is_saved() -> None:
    fixed = KlController()
    adaptive = KlController("adaptive")
    resumed = KlController("adaptive")
    fixed.update(5.0, 100)
    adaptive.update(5.0, 100)
    resumed.load_state_dict(adaptive.state_dict())
    assert fixed.coefficient == 0.001
    assert resumed.coefficient == adaptive.coefficient > 0.001


def test_icepop_sets_weights_to_0_and_rejection_removes_tokens_from_the_mask() -> None:
    mask = torch.tensor([[True, True, True, False]])
    trainer = torch.tensor([[1.0, 3.0, 0.1, math.nan]]).log()
    engine = torch.zeros(1, 4)
    result = correct_rollout(
        trainer, engine, mask, lower_threshold=0.5, threshold=5.0, rejection="token_k1", rejection_threshold=2.0
    )
    assert result.weights is not None
    torch.testing.assert_close(result.weights, torch.tensor([[1.0, 3.0, 0.0, 0.0]]))
    assert result.mask.tolist() == [[True, False, False, False]]
    assert result.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(2 / 3)


def test_weights_that_are_all_0_have_an_effective_sample_size_of_0() -> None:
    log_probs = torch.full((1, 2), -1.0)
    result = correct_rollout(log_probs, log_probs - 3, torch.ones(1, 2).bool(), lower_threshold=0.5)
    assert result.metrics["rollout_corr/rollout_is_eff_sample_size"] == 0
