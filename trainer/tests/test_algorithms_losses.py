"""Losses, KL and aggregation against numbers worked out by hand, and their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from rlt_trainer.algorithms.aggregation import AggregationMode, aggregate, masked_sum
from rlt_trainer.algorithms.kl import k3
from rlt_trainer.algorithms.losses import ppo_clip_loss

MASK = torch.tensor([[True, True, True], [True, False, False]])
VALUES = torch.tensor([[1.0, 2.0, 3.0], [5.0, 100.0, 100.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 11 / 4),
        ("seq-mean-token-sum", (6 + 5) / 2),
        ("seq-mean-token-mean", (2 + 5) / 2),
    ],
)
def test_aggregation(mode: AggregationMode, expected: float) -> None:
    assert aggregate(VALUES, MASK, mode, total_tokens=4, total_sequences=2).item() == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_shares_of_micro_batches_add_up(mode: AggregationMode) -> None:
    whole = aggregate(VALUES, MASK, mode, total_tokens=4, total_sequences=2)
    parts = [aggregate(VALUES[i], MASK[i], mode, total_tokens=4, total_sequences=2) for i in (slice(1), slice(1, 2))]
    assert_close(sum(parts), whole)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_nan_at_padding_reaches_neither_loss_nor_gradient(mode: AggregationMode) -> None:
    values = VALUES.masked_fill(~MASK, math.nan).requires_grad_()
    loss = aggregate(values * 2, MASK, mode, total_tokens=4, total_sequences=2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert loss.isfinite()
    assert not values.grad[~MASK].any()
    assert values.grad[MASK].all()


def test_on_policy_the_ratio_is_one_and_nothing_is_clipped() -> None:
    log_probs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages = torch.tensor([[3.0, -4.0]])
    result = ppo_clip_loss(log_probs, log_probs.detach(), advantages, clip_ratio=0.2)
    result.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert_close(result.loss, -advantages)
    assert_close(log_probs.grad, -advantages)  # the policy gradient itself
    assert not result.clipped.any()
    assert not result.kl.any()


def test_the_clip_stops_the_gradient_only_where_the_ratio_has_gone_too_far() -> None:
    ratios = torch.tensor([1.5, 0.5, 1.5, 0.5])
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    log_probs = ratios.log().requires_grad_()
    result = ppo_clip_loss(log_probs, torch.zeros(4), advantages, clip_ratio=0.2)
    result.loss.sum().backward()  # type: ignore[no-untyped-call]
    assert_close(result.loss, torch.tensor([-1.2, -0.5, 1.5, 0.8]))
    assert result.clipped.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert_close(log_probs.grad, torch.tensor([0.0, -0.5, 1.5, 0.0]))


def test_a_huge_difference_of_log_probabilities_stays_finite() -> None:
    result = ppo_clip_loss(torch.tensor([0.0]), torch.tensor([-1000.0]), torch.tensor([-1.0]), clip_ratio=0.2)
    assert_close(result.loss, torch.tensor([math.exp(20.0)]))


def test_k3() -> None:
    log_probs, reference = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -0.5, -3.0])
    expected = [0.0, math.exp(0.5) - 0.5 - 1, math.exp(-2.0) + 2.0 - 1]
    assert_close(k3(log_probs, reference), torch.tensor(expected))


def test_k3_is_never_negative_and_its_mean_is_the_divergence() -> None:
    torch.manual_seed(0)
    policy, reference = (torch.randn(2, 5) / 2).log_softmax(-1)
    values = k3(policy, reference)
    assert (values >= 0).all()
    divergence = (policy.exp() * (policy - reference)).sum()
    assert_close((policy.exp() * values).sum(), divergence)


def test_equal_rewards_and_no_kl_make_no_gradient() -> None:
    log_probs = torch.randn(2, 3, requires_grad=True)
    loss = ppo_clip_loss(log_probs, log_probs.detach(), torch.zeros(2, 3), clip_ratio=0.2).loss
    masked_sum(loss, MASK).backward()  # type: ignore[no-untyped-call]
    assert log_probs.grad is not None
    assert not log_probs.grad.any()
