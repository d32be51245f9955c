"""Properties that hold for any batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs, place_at_last_token
from rlt_trainer.algorithms.aggregation import AggregationMode, aggregate
from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs, kl_loss
from rlt_trainer.algorithms.masking import masked_sum, row_means
from rlt_trainer.algorithms.rollout_correction import compute_mismatch_metrics, correct_rollout

MODES: list[AggregationMode] = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
CONVENTIONS: list[ConventionName] = ["verl", "trl"]
seeds = st.integers(0, 2**31)
few = settings(max_examples=30, deadline=None, derandomize=True)


class Batch:
    """Eight random responses of up to five tokens, with padding and observations."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        lengths = self.integers(1, 6, 8)
        self.mask = (torch.arange(5) < lengths[:, None]) & (self.normal() > -1)
        self.mask[:, 0] = True
        self.groups = self.integers(0, 3, 8)
        self.rewards = self.normal()
        self.values = self.normal()
        self.log_probs = -self.normal().abs()
        self.old_log_probs = self.log_probs + 0.4 * self.normal()
        self.ref_log_probs = self.log_probs + 0.4 * self.normal()
        self.advantages = self.normal()
        self.weights = self.normal().abs()

    def normal(self) -> Tensor:
        return torch.randn(8, 5, generator=self.generator, dtype=torch.float64)

    def integers(self, low: int, high: int, count: int) -> Tensor:
        return torch.randint(low, high, (count,), generator=self.generator)

    def advantage_inputs(self, **changes: Any) -> AdvantageInputs:
        inputs = AdvantageInputs(self.rewards, self.mask, self.groups, self.values, self.values[:, 0], 0.9, 0.8)
        return replace(inputs, **changes)

    def part(self, name: str, rows: Any = slice(None), width: int = 5, outside: float = 0.0) -> Tensor:
        """Return rows truncated or padded to `width`, with the value `outside` outside the mask."""
        value = getattr(self, name)[rows]
        mask = self.mask[rows]
        if value.dtype == torch.float64:
            value = value.masked_fill(~mask, outside)
        return torch.nn.functional.pad(value, (0, width - 5), value=False if name == "mask" else outside)

    def loss(self, name: str, mode: AggregationMode, convention: ConventionName, **how: Any) -> tuple[Tensor, Tensor]:
        """Return the share of some rows in the loss of all rows, with KL term, and its gradient."""

        def part(name: str) -> Tensor:
            return self.part(name, **how)

        log_probs = part("log_probs").requires_grad_()
        mask = part("mask")
        inputs = LossInputs(
            log_probs,
            part("old_log_probs"),
            part("advantages"),
            mask,
            part("weights"),
            clip_ratio_high=1.5 if name == "cispo" else 0.3,
            clip_ratio_c=3.0,
            convention=convention,
        )
        per_token = POLICY_LOSSES[name](inputs).loss + 0.1 * kl_loss(inputs, part("ref_log_probs"))
        counts = {"total_tokens": int(self.mask.sum()), "total_sequences": 8}
        loss = aggregate(per_token, mask, mode, loss_scale_factor=7, **counts)
        loss.backward()  # type: ignore[no-untyped-call]
        assert log_probs.grad is not None
        return loss.detach(), log_probs.grad


every_loss: Callable[[Any], Any] = given(
    seed=seeds,
    name=st.sampled_from(sorted(POLICY_LOSSES)),
    mode=st.sampled_from(MODES),
    convention=st.sampled_from(CONVENTIONS),
)


@few
@every_loss
def test_loss_and_gradient_do_not_depend_on_micro_batches(
    seed: int, name: str, mode: AggregationMode, convention: ConventionName
) -> None:
    batch = Batch(seed)
    whole, gradient = batch.loss(name, mode, convention)
    parts = [batch.loss(name, mode, convention, rows=rows) for rows in (slice(0, 3), slice(3, 4), slice(4, 8))]
    assert_close(torch.stack([loss for loss, _ in parts]).sum(), whole)
    assert_close(torch.cat([each for _, each in parts]), gradient)


@few
@every_loss
def test_loss_and_gradient_do_not_depend_on_padding(
    seed: int, name: str, mode: AggregationMode, convention: ConventionName
) -> None:
    batch = Batch(seed)
    whole, gradient = batch.loss(name, mode, convention)
    padded, padded_gradient = batch.loss(name, mode, convention, width=9)
    assert_close(padded, whole)
    assert_close(padded_gradient[:, :5], gradient)
    assert not padded_gradient[:, 5:].any()


@few
@every_loss
def test_loss_and_gradient_do_not_depend_on_order(
    seed: int, name: str, mode: AggregationMode, convention: ConventionName
) -> None:
    batch = Batch(seed)
    order = torch.randperm(8, generator=batch.generator)
    whole, gradient = batch.loss(name, mode, convention)
    shuffled, shuffled_gradient = batch.loss(name, mode, convention, rows=order)
    assert_close(shuffled, whole)
    assert_close(shuffled_gradient, gradient[order])


@few
@every_loss
def test_nan_outside_the_mask_affects_neither_loss_nor_gradient(
    seed: int, name: str, mode: AggregationMode, convention: ConventionName
) -> None:
    batch = Batch(seed)
    whole, gradient = batch.loss(name, mode, convention)
    with_nan, nan_gradient = batch.loss(name, mode, convention, outside=math.nan)
    assert with_nan.equal(whole)
    assert nan_gradient.equal(gradient)
    assert not gradient[~batch.mask].any()


@few
@given(seed=seeds, name=st.sampled_from(sorted(POLICY_LOSSES)), convention=st.sampled_from(CONVENTIONS))
def test_on_policy_the_first_step_is_the_policy_gradient(seed: int, name: str, convention: ConventionName) -> None:
    batch = Batch(seed)
    log_probs = batch.log_probs.clone().requires_grad_()
    inputs = LossInputs(
        log_probs, batch.log_probs, batch.advantages, batch.mask, clip_ratio_high=1.5, convention=convention
    )
    result = POLICY_LOSSES[name](inputs)
    masked_sum(result.loss, batch.mask).backward()  # type: ignore[no-untyped-call]
    assert inputs.log_ratio.exp().equal(torch.ones_like(log_probs))
    assert not any(metric.any() for metric in result.metrics.values())  # no clip, KL 0: exactly
    assert not kl_loss(inputs, batch.log_probs).any()
    assert log_probs.grad is not None
    advantages = batch.advantages
    if name == "geo_mean":  # one advantage for a response
        advantages = row_means(batch.advantages, batch.mask)[:, None].expand(batch.mask.shape)
    assert_close(log_probs.grad, -advantages.where(batch.mask, 0))


@few
@given(seed=seeds, name=st.sampled_from(["grpo", "rloo", "opo", "grpo_passk", "reinforce_plus_plus_baseline"]))
def test_equal_rewards_within_groups_have_no_gradient(seed: int, name: str) -> None:
    batch = Batch(seed)
    groups = torch.tensor([0, 1, 0, 2, 2, 0, 0, 1])
    mask = batch.mask.index_fill(0, torch.tensor([6]), False)  # one reward failed
    rewards = place_at_last_token(batch.rewards[groups, 0].float(), mask)
    assert not ESTIMATORS[name](AdvantageInputs(rewards, mask, groups)).advantages.any()


@few
@given(seed=seeds, name=st.sampled_from(sorted(ESTIMATORS)), convention=st.sampled_from(CONVENTIONS))
def test_advantages_do_not_depend_on_order_padding_or_nan_outside_the_mask(
    seed: int, name: str, convention: ConventionName
) -> None:
    batch = Batch(seed)
    order = torch.randperm(8, generator=batch.generator)
    expected = ESTIMATORS[name](batch.advantage_inputs(convention=convention))
    rewards, mask, values = (batch.part(part, order, 9, math.nan) for part in ("rewards", "mask", "values"))
    inputs = AdvantageInputs(
        rewards, mask, 5 - batch.groups[order], values, batch.values[order, 0], 0.9, 0.8, convention=convention
    )
    result = ESTIMATORS[name](inputs)
    assert_close(result.advantages[:, :5], expected.advantages[order])
    assert_close(result.returns[:, :5], expected.returns[order])
    assert not result.advantages[~mask].any()


@few
@given(seed=seeds, name=st.sampled_from(sorted(ESTIMATORS)), convention=st.sampled_from(CONVENTIONS))
def test_a_response_whose_reward_failed_has_no_effect(seed: int, name: str, convention: ConventionName) -> None:
    batch = Batch(seed)
    rest = torch.tensor([0, 1, 2, 4, 5, 6, 7])
    failed = torch.tensor([3])
    # A response that is left alone has advantage 0, and not the score of the only response to a prompt.
    assume((batch.groups[rest] == batch.groups[3]).sum() != 1)
    whole = ESTIMATORS[name](
        batch.advantage_inputs(
            token_rewards=batch.rewards.index_fill(0, failed, math.nan),
            mask=batch.mask.index_fill(0, failed, False),
            convention=convention,
        )
    )
    without = ESTIMATORS[name](
        batch.advantage_inputs(
            token_rewards=batch.rewards[rest],
            mask=batch.mask[rest],
            groups=batch.groups[rest],
            values=batch.values[rest],
            baselines=batch.values[rest, 0],
            convention=convention,
        )
    )
    assert_close(whole.advantages[rest], without.advantages)
    assert not whole.advantages[3].any()


@few
@given(seed=seeds)
def test_rloo_is_the_score_minus_the_mean_of_the_others(seed: int) -> None:
    batch = Batch(seed)
    scores = batch.rewards.where(batch.mask, 0).sum(-1)
    result = ESTIMATORS["rloo"](batch.advantage_inputs()).advantages[:, 0]
    for row in range(8):
        others = [scores[other] for other in range(8) if batch.groups[other] == batch.groups[row] and other != row]
        assert_close(result[row], scores[row] - (sum(others) / len(others) if others else 0))


@few
@given(seed=seeds, places=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_observations_between_turns_have_no_effect(seed: int, places: list[int]) -> None:
    batch = Batch(seed)
    insert = [column for column in range(6) for _ in range(places.count(column))]
    kept = torch.ones(5 + len(insert), dtype=torch.bool)
    kept[[column + shift for shift, column in enumerate(insert)]] = False

    def spread(value: Tensor, fill: float) -> Tensor:
        wide = torch.full((8, len(kept)), fill, dtype=value.dtype)
        wide[:, kept] = value
        return wide

    for name in ("gae", "reinforce_plus_plus", "remax"):
        expected = ESTIMATORS[name](batch.advantage_inputs())
        mask = spread(batch.mask, False)
        inputs = batch.advantage_inputs(
            token_rewards=spread(batch.rewards, 7.0), mask=mask, values=spread(batch.values, -7.0)
        )
        result = ESTIMATORS[name](inputs)
        assert_close(result.advantages[:, kept], expected.advantages)
        assert_close(result.returns[:, kept], expected.returns)


@few
@given(seed=seeds, scale=st.sampled_from([1e-9, 1e-4, 0.1, 1.0, 30.0]))
def test_k3_is_never_negative_and_with_plus_has_the_gradient_of_k2(seed: int, scale: float) -> None:
    batch = Batch(seed)
    for dtype in (torch.float32, torch.float64):
        log_probs = batch.log_probs.to(dtype)
        reference = log_probs + scale * batch.advantages.to(dtype)
        assert (kl_divergence(log_probs, reference, "low_var_kl") >= 0).all()
    log_probs = batch.log_probs.clone().requires_grad_()
    reference = batch.log_probs + scale * batch.advantages
    value = kl_divergence(log_probs, reference, "low_var_kl+")
    assert_close(value.detach(), kl_divergence(batch.log_probs, reference, "low_var_kl"))
    expected = torch.autograd.grad(kl_divergence(log_probs, reference, "mse").sum(), log_probs)
    assert_close(torch.autograd.grad(value.sum(), log_probs), expected)


@few
@given(seed=seeds, level=st.sampled_from(["token", "sequence"]), lower=st.sampled_from([None, 0.5]))
def test_the_rollout_correction_has_no_effect_if_engine_and_trainer_agree(
    seed: int, level: Any, lower: float | None
) -> None:
    batch = Batch(seed)
    engine = batch.log_probs.masked_fill(~batch.mask, math.nan)
    settings: dict[str, Any] = {"rejection": "seq_mean_k1", "rejection_threshold": 1.001}
    result = correct_rollout(batch.log_probs, engine, batch.mask, level=level, lower_threshold=lower, **settings)
    assert result.weights is not None
    assert result.weights.equal(batch.mask.double())
    assert result.mask.equal(batch.mask)
    assert compute_mismatch_metrics(batch.log_probs, engine, batch.mask)["training/rollout_probs_diff_max"] == 0


@pytest.mark.parametrize("tokens", [1, 2])
def test_the_mismatch_metrics_of_constant_probabilities_are_finite(tokens: int) -> None:
    log_probs = torch.full((1, tokens), -1.0)
    metrics = compute_mismatch_metrics(log_probs, log_probs - 0.5, torch.ones(1, tokens, dtype=torch.bool))
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["training/rollout_probs_diff_std"] == 0
    assert "training/rollout_actor_probs_pearson_corr" not in metrics
