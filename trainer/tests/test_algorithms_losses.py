"""Losses, KL and aggregation, and their gradients, against values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlt_trainer.algorithms.aggregation import AggregationMode, aggregate
from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs, TokenLoss, value_loss

MASK = torch.tensor([[True, True, True], [True, False, False]])
VALUES = torch.tensor([[1.0, 2.0, 3.0], [5.0, 100.0, 100.0]])


def run(name: str, ratios: list[float], advantages: list[float], **settings: Any) -> tuple[TokenLoss, Tensor]:
    """Return the loss and gradient of one response whose tokens have the given ratios."""
    log_probs = torch.tensor([ratios]).log().requires_grad_()
    mask = torch.ones_like(log_probs).bool()
    inputs = LossInputs(log_probs, torch.zeros_like(log_probs), torch.tensor([advantages]), mask, **settings)
    result = POLICY_LOSSES[name](inputs)
    result.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    return result, log_probs.grad[0]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 11 / 4),
        ("seq-mean-token-sum", (6 + 5) / 2),
        ("seq-mean-token-mean", (2 + 5) / 2),
        ("seq-mean-token-sum-norm", (6 + 5) / 2 / 10),
    ],
)
def test_aggregation(mode: AggregationMode, expected: float) -> None:
    loss = aggregate(VALUES, MASK, mode, total_tokens=4, total_sequences=2, loss_scale_factor=10)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_a_mini_batch_without_tokens_has_loss_0(mode: AggregationMode) -> None:
    assert aggregate(VALUES, torch.zeros_like(MASK), mode, total_tokens=0, total_sequences=0).item() == 0


def test_the_clip_stops_the_gradient_only_beyond_the_bound() -> None:
    result, gradient = run("vanilla", [1.5, 0.5, 1.5, 0.5], [1.0, 1.0, -1.0, -1.0])
    assert_close(result.loss[0], torch.tensor([-1.2, -0.5, 1.5, 0.8]))
    assert result.metrics["actor/pg_clipfrac"].tolist() == [[1, 0, 0, 1]]
    assert_close(gradient, torch.tensor([0.0, -0.5, 1.5, 0.0]))


def test_clip_ratio_high_is_a_separate_bound() -> None:
    result, _ = run("vanilla", [1.5, 0.5], [1.0, -1.0], clip_ratio_low=0.4, clip_ratio_high=0.28)
    assert_close(result.loss[0], torch.tensor([-1.28, 0.6]))


def test_the_dual_clip_bounds_the_loss_of_a_negative_advantage() -> None:
    result, gradient = run("vanilla", [5.0, 5.0, 2.0], [-1.0, 1.0, -1.0], clip_ratio_c=3.0)
    assert_close(result.loss[0], torch.tensor([3.0, -1.2, 2.0]))
    assert result.metrics["actor/pg_clipfrac_lower"].tolist() == [[1, 0, 0]]
    assert_close(gradient, torch.tensor([0.0, 0.0, 2.0]))


def test_gspo_clips_whole_responses() -> None:
    result, gradient = run("gspo", [2.0, 0.5, 2.0], [1.0, 1.0, 1.0], clip_ratio_high=0.2)
    assert_close(result.loss[0], torch.full((3,), -1.2))  # the geometric mean is 2^(1/3) = 1.26
    assert not gradient.any()


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    result, gradient = run("cispo", [1.5, 0.5, 1.1], [1.0, 1.0, -2.0])
    assert_close(gradient, torch.tensor([-1.2, -0.8, 2.2]))
    assert result.metrics["actor/pg_clipfrac"].tolist() == [[1, 1, 0]]


def test_cispo_in_trls_convention_rejects_a_bound_below_1() -> None:
    with pytest.raises(ValueError, match=r"clipRatioHigh: 0.2 is below 1"):
        run("cispo", [1.0], [1.0], convention="trl")


def test_sapo_is_steeper_for_negative_advantages() -> None:
    result, _ = run("sapo", [1.5, 1.5], [1.0, -1.0], tau_pos=1.0, tau_neg=2.0)
    assert_close(result.loss[0], torch.tensor([-4 / (1 + math.exp(-0.5)), 2 / (1 + math.exp(-1.0))]))


def test_geo_mean_clips_tokens_and_averages_a_response() -> None:
    result, _ = run("geo_mean", [2.0, 0.5, 1.0], [1.0, 1.0, 1.0], clip_ratio_low=0.4, clip_ratio_high=0.4)
    expected = -math.exp((0.4 + math.log(0.5)) / 3)  # a lower ratio is not clipped for a positive advantage
    assert_close(result.loss[0], torch.full((3,), expected))
    assert result.metrics["actor/pg_clipfrac"].tolist() == [[1, 1, 0]]


def test_dppo_leaves_out_tokens_whose_probability_changed() -> None:
    advantages = [1.0, 1.0, -1.0, -1.0]
    result, gradient = run("dppo_tv", [1.5, 0.5, 1.5, 0.5], advantages, clip_ratio_low=0.1, clip_ratio_high=0.1)
    assert result.metrics["actor/pg_clipfrac"].tolist() == [[1, 0, 0, 1]]
    assert_close(gradient, torch.tensor([0.0, -0.5, 1.5, 0.0]))


def test_weights_multiply_losses() -> None:
    result, _ = run("vanilla", [1.0, 1.0], [1.0, 1.0], weights=torch.tensor([[0.5, 2.0]]))
    assert_close(result.loss[0], torch.tensor([-0.5, -2.0]))


def test_a_huge_difference_of_log_probabilities_stays_finite() -> None:
    inputs = LossInputs(torch.zeros(1, 1), torch.full((1, 1), -1000.0), -torch.ones(1, 1), torch.ones(1, 1).bool())
    assert_close(POLICY_LOSSES["vanilla"](inputs).loss.item(), math.exp(20.0))


def test_the_value_loss_is_the_larger_of_clipped_and_unclipped() -> None:
    values = torch.tensor([[2.0, 2.0]])
    old = torch.tensor([[1.0, 1.0]])
    returns = torch.tensor([[3.0, 1.0]])
    result = value_loss(values, old_values=old, returns=returns, mask=torch.ones(1, 2).bool(), cliprange_value=0.5)
    assert_close(result.loss, torch.tensor([[1.5**2 / 2, 1.0**2 / 2]]))
    assert result.metrics["critic/vf_clipfrac"].tolist() == [[1, 0]]


def test_k3() -> None:
    log_probs = torch.tensor([-1.0, -1.0, -1.0])
    reference = torch.tensor([-1.0, -0.5, -3.0])
    expected = [0.0, math.exp(0.5) - 0.5 - 1, math.exp(-2.0) + 2.0 - 1]
    assert_close(kl_divergence(log_probs, reference, "low_var_kl"), torch.tensor(expected))


@pytest.mark.parametrize("estimator", ["kl", "low_var_kl"])
def test_the_mean_of_an_estimator_is_the_divergence(estimator: Any) -> None:
    torch.manual_seed(0)
    policy, reference = (torch.randn(2, 5) / 2).log_softmax(-1)
    divergence = (policy.exp() * (policy - reference)).sum()
    assert_close((policy.exp() * kl_divergence(policy, reference, estimator)).sum(), divergence)
