"""Gradients against finite differences, in float64 to keep rounding errors small."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck
from torch.testing import assert_close

from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.conventions import ConventionName
from rlt_trainer.algorithms.losses import POLICY_LOSSES, LossInputs, kl_loss, value_loss
from rlt_trainer.algorithms.masking import masked_sum

GENERATOR = torch.Generator().manual_seed(0)


def normal(scale: float = 1.0) -> Tensor:
    return torch.randn(8, 5, generator=GENERATOR, dtype=torch.float64) * scale


MASK = normal() > -1
LOG_PROBS = -normal().abs()
OLD = LOG_PROBS + normal(0.4)
REFERENCE = LOG_PROBS + normal(0.4)
ADVANTAGES = normal()


@pytest.mark.parametrize("convention", ["verl", "trl"])
@pytest.mark.parametrize("name", ["vanilla", "sapo", "geo_mean", "gpg", "clip_cov", "kl_cov"])
def test_policy_loss_and_kl(name: str, convention: ConventionName) -> None:
    def loss(log_probs: Tensor) -> Tensor:
        inputs = LossInputs(
            log_probs, OLD, ADVANTAGES, MASK, is_selected=OLD < -0.5, clip_ratio_c=3.0, convention=convention
        )
        return masked_sum(POLICY_LOSSES[name](inputs).loss + kl_loss(inputs, REFERENCE), MASK)

    assert gradcheck(loss, LOG_PROBS.clone().requires_grad_())


def test_the_gspo_gradient_equals_the_response_ratios() -> None:
    advantages = ADVANTAGES[:, :1].expand(8, 5)

    def of_sequences(log_probs: Tensor) -> Tensor:
        ratio = (((log_probs - OLD) * MASK).sum(-1) / MASK.sum(-1)).exp()
        return torch.maximum(-ADVANTAGES[:, 0] * ratio, -ADVANTAGES[:, 0] * ratio.clamp(0.8, 1.2)).sum()

    def of_tokens(log_probs: Tensor) -> Tensor:
        result = POLICY_LOSSES["gspo"](LossInputs(log_probs, OLD, advantages, MASK))
        return aggregate(result.loss, MASK, "seq-mean-token-mean", total_tokens=1, total_sequences=1)

    log_probs = LOG_PROBS.clone().requires_grad_()
    assert gradcheck(of_sequences, log_probs)
    assert_close(of_tokens(log_probs), of_sequences(log_probs))
    assert_close(grad(of_tokens(log_probs), log_probs), grad(of_sequences(log_probs), log_probs))


def test_the_cispo_gradient_is_the_policy_gradient_times_the_clipped_ratio() -> None:
    weight = (LOG_PROBS - OLD).exp().clamp(0.8, 1.2)

    def fixed(log_probs: Tensor) -> Tensor:
        return masked_sum(-ADVANTAGES * weight * log_probs, MASK)

    log_probs = LOG_PROBS.clone().requires_grad_()
    assert gradcheck(fixed, log_probs)
    loss = masked_sum(POLICY_LOSSES["cispo"](LossInputs(log_probs, OLD, ADVANTAGES, MASK)).loss, MASK)
    assert_close(grad(loss, log_probs), grad(fixed(log_probs), log_probs))


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])
def test_the_dppo_gradient_is_the_policy_gradient_times_the_bounded_ratio(name: str) -> None:
    log_probs = LOG_PROBS.clone().requires_grad_()
    inputs = LossInputs(log_probs, OLD, ADVANTAGES, MASK, clip_ratio_low=0.02, clip_ratio_high=0.02, clip_ratio_c=1.1)
    result = POLICY_LOSSES[name](inputs)
    is_kept = result.metrics["actor/pg_clipfrac"] == 0
    assert 0 < is_kept[MASK].sum() < MASK.sum()
    weight = (LOG_PROBS - OLD).exp().clamp(max=1.1) * is_kept

    def fixed(log_probs: Tensor) -> Tensor:
        return masked_sum(-ADVANTAGES * weight * log_probs, MASK)

    assert gradcheck(fixed, log_probs)
    assert_close(grad(masked_sum(result.loss, MASK), log_probs), grad(fixed(log_probs), log_probs))


def test_the_value_loss_and_its_mask() -> None:
    returns, old = (normal().masked_fill(~MASK, math.nan) for _ in range(2))

    def loss(values: Tensor) -> Tensor:
        return value_loss(values, old_values=old, returns=returns, mask=MASK, cliprange_value=0.2).loss

    values = normal().requires_grad_()
    assert gradcheck(loss, values)
    assert not grad(loss(values).sum(), values)[0][~MASK].any()
