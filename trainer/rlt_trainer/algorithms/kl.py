"""Estimators of the KL divergence between the policy and its reference, from sampled tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rlt_trainer.algorithms.conventions import CONVENTIONS, ConventionName

if TYPE_CHECKING:  # not at run time: bench/train_step.py runs without pydantic
    from rlt_api.blocks.algorithm import LossKlEstimator


def kl_divergence(
    log_probs: Tensor, ref_log_probs: Tensor, estimator: LossKlEstimator, *, convention: ConventionName = "verl"
) -> Tensor:
    """KL(policy || reference) per token, for tokens sampled from the policy. Any shape.

    With d = log_probs - ref_log_probs. The names are verl's (kl_penalty in verl 0.9.1), in brackets Schulman's
    (http://joschu.net/blog/kl-approx.html):
    kl (k1): d; unbiased, of high variance, may be negative.
    abs: |d|.
    mse (k2): d^2 / 2; its gradient is an unbiased estimate of the divergence's gradient.
    low_var_kl (k3): exp(-d) + d - 1; unbiased, of low variance, never negative.
    With "+": the value of the estimator with the gradient of k2 (straight-through).
    """
    if estimator.endswith("+"):
        value = _estimate(log_probs, ref_log_probs, estimator[:-1], convention).detach()
        unbiased = (log_probs - ref_log_probs).square() / 2
        return unbiased - unbiased.detach() + value
    return _estimate(log_probs, ref_log_probs, estimator, convention)


def _estimate(log_probs: Tensor, ref_log_probs: Tensor, estimator: str, convention: ConventionName) -> Tensor:
    difference = log_probs - ref_log_probs
    match estimator:
        case "kl":
            return difference
        case "abs":
            return difference.abs()
        case "mse":
            return difference.square() / 2
        case "low_var_kl":
            bounds = CONVENTIONS[convention]
            x = (-difference).clamp(-bounds.k3_input_bound, bounds.k3_input_bound)
            # expm1, not exp - 1: for small x the latter is only rounding error, which may be negative
            return (x.expm1() - x).clamp(-bounds.k3_bound, bounds.k3_bound)
        case _:
            raise AssertionError(f"unknown estimator: {estimator}")
