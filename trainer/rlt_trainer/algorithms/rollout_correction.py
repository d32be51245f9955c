"""Rollout correction: the mismatch between the trainer's and the engine's token probabilities, and its correction.

r is the trainer's probability of a token divided by the engine's. Names and formulas: verl 0.9.1,
verl/trainer/ppo/rollout_corr_helper.py. docs/algorithms.md explains the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from rlt_api.blocks.algorithm import Algorithm, Rejection, RolloutCorrection
from rlt_trainer.algorithms.masking import apply_mask, masked_mean, row_means, row_sums, select

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to +- this before exp."""


@dataclass(frozen=True)
class Correction:
    """The correction of a batch."""

    weights: Tensor | None
    """[B, T]: factors of the losses, 0 outside the mask before rejection. None: no weights."""
    mask: Tensor
    """[B, T], bool: the response mask without rejected tokens. Denominators are counted from it."""
    metrics: dict[str, float]
    """rollout_corr/..."""


def is_bypassed(algorithm: Algorithm) -> bool:
    """Whether the engine's log-probabilities count as the old policy's (rolloutCorrection.bypassMode)."""
    return algorithm.rollout_correction is not None and algorithm.rollout_correction.bypass_mode


def compute_weights(
    log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor, correction: RolloutCorrection
) -> Tensor | None:
    """Compute the weights of the losses: [B, T] from [B, T], without gradient, 0 outside the mask. None: no weights.

    Rows must contain complete responses.
    """
    if correction.bypass_mode or correction.level == "none":
        return None
    log_ratio = apply_mask(log_probs.detach() - rollout_log_probs, mask)
    raw = _ratios(log_ratio, mask, correction.level)
    return _bound(raw, correction.threshold, correction.lower_threshold)


def correct_rollout(
    log_probs: Tensor,
    rollout_log_probs: Tensor,
    mask: Tensor,
    *,
    level: Literal["token", "sequence"] | None = "token",
    threshold: float = 2.0,
    lower_threshold: float | None = None,
    rejection: Rejection | None = None,
    rejection_threshold: float | None = None,
) -> Correction:
    """Compute weights and mask of a step's batch. All tensors [B, T].

    log_probs: the trainer's, at the start of the step; rollout_log_probs: the engine's, of its processed distribution.
    level: token weights each token by its r, sequence each response by the product over its tokens.
    threshold: upper bound of the weights (truncated importance sampling). With lower_threshold, weights outside the two
    become 0 instead (IcePop, arXiv 2510.18855). A token of weight 0 still counts in the denominators.
    rejection: removes tokens or whole responses whose statistic exceeds rejection_threshold from the mask, and so from
    the denominators. The statistic of a token is, with x = log r: k1 -x, k2 x^2 / 2, k3 exp(x) - 1 - x. For k1 a
    threshold t accepts ratios between 1/t and t; for k2 and k3 it is an upper bound.
    """
    log_ratio = apply_mask(log_probs - rollout_log_probs, mask)
    weights = None
    metrics = {}
    if level is not None:
        raw = _ratios(log_ratio, mask, level)
        weights = _bound(raw, threshold, lower_threshold)
        if lower_threshold is not None:
            outside = (raw < lower_threshold) | (raw > threshold)
            metrics["rollout_is_oob_ratio"] = masked_mean(outside.to(raw.dtype), mask)
        lower = 1 / threshold if lower_threshold is None else lower_threshold
        metrics |= _weight_metrics(weights, raw, mask, level, lower, threshold)
    accepted = mask
    if rejection is not None:
        assert rejection_threshold is not None, "rejection needs rejection_threshold"
        accepted, rejected = _reject(log_ratio, mask, rejection, rejection_threshold)
        metrics |= rejected
    return Correction(weights, accepted, {f"rollout_corr/{name}": float(value) for name, value in metrics.items()})


def _ratios(log_ratio: Tensor, mask: Tensor, level: Literal["token", "sequence"]) -> Tensor:
    """Return the ratios [B, T], 0 outside the mask."""
    if level == "sequence":
        log_ratio = row_sums(log_ratio, mask)[:, None].expand(mask.shape)
    return apply_mask(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp(), mask)


def _bound(raw: Tensor, threshold: float, lower_threshold: float | None) -> Tensor:
    """Truncate the ratios, or set those outside both thresholds to 0: [B, T]."""
    if lower_threshold is None:
        return raw.clamp(max=threshold)
    return apply_mask(raw, (raw >= lower_threshold) & (raw <= threshold))


def _weight_metrics(
    weights: Tensor, raw: Tensor, mask: Tensor, level: Literal["token", "sequence"], lower: float, upper: float
) -> dict[str, Tensor]:
    """As in verl: extremes of token weights after clamping, of response weights before it; fractions before it."""
    rows = mask.any(-1)
    by_response = row_means(weights, mask)[rows]
    before = raw[mask] if level == "token" else raw.amax(-1)[rows]
    extremes = weights[mask] if level == "token" else before
    mean = masked_mean(weights, mask)
    return {
        "rollout_is_mean": mean,
        "rollout_is_max": extremes.max(),
        "rollout_is_min": extremes.min(),
        "rollout_is_std": weights[mask].std(correction=0),
        "rollout_is_eff_sample_size": mean.square() / masked_mean(weights.square(), mask).clamp(min=1e-8),
        "rollout_is_ratio_fraction_high": (before > upper).to(raw.dtype).mean(),
        "rollout_is_ratio_fraction_low": (before < lower).to(raw.dtype).mean(),
        "rollout_is_seq_mean": by_response.mean(),
        "rollout_is_seq_std": by_response.std() if len(by_response) > 1 else by_response.new_zeros(()),
        "rollout_is_seq_max": by_response.max(),
        "rollout_is_seq_min": by_response.min(),
    }


def _reject(
    log_ratio: Tensor, mask: Tensor, rejection: Rejection, threshold: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mask without rejected tokens, and metrics."""
    level, _, kind = rejection.rpartition("_")  # seq_mean_k1: seq_mean, k1
    x = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    per_token = apply_mask({"k1": -x, "k2": x.square() / 2, "k3": x.expm1() - x}[kind], mask)
    statistic = {
        "token": per_token,
        "seq_sum": row_sums(per_token, mask)[:, None],
        "seq_mean": row_means(per_token, mask)[:, None],
        "seq_max": per_token.amax(-1, keepdim=True),
    }[level].expand(mask.shape)
    outside = statistic.abs() > log(threshold) if kind == "k1" else statistic > threshold
    accepted = mask & ~outside
    return accepted, {
        f"rollout_rs_{rejection}_mean": masked_mean(statistic, mask),
        f"rollout_rs_{rejection}_max": statistic[mask].max(),
        f"rollout_rs_{rejection}_min": statistic[mask].min(),
        "rollout_rs_masked_fraction": masked_mean(outside.to(x.dtype), mask),
        "rollout_rs_seq_masked_fraction": (mask & outside).any(-1).to(x.dtype).mean(),
    }


def compute_mismatch_metrics(log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor) -> dict[str, float]:
    """Compute the metrics of the mismatch, before any correction. All [B, T]; `mask` must not be empty.

    verl's FAQ calls training/rollout_probs_diff_mean below 0.005 healthy and above 0.01 bad.
    """
    trainer, engine = select(mask, log_probs, rollout_log_probs)
    log_ratio = trainer - engine
    rows = mask.any(-1)
    counts = mask.to(log_probs.dtype).sum(-1)[rows]
    trainer_sum = row_sums(log_probs, mask)[rows]
    engine_sum = row_sums(rollout_log_probs, mask)[rows]
    trainer_log_ppl = -trainer_sum / counts
    engine_log_ppl = -engine_sum / counts
    log_ppl_diff = trainer_log_ppl - engine_log_ppl
    probabilities = torch.stack([trainer.exp(), engine.exp()])
    difference = (probabilities[0] - probabilities[1]).abs()
    bounded, bounded_sum = (each.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) for each in (log_ratio, trainer_sum - engine_sum))
    metrics = {
        "training/rollout_probs_diff_mean": difference.mean(),
        "training/rollout_probs_diff_max": difference.max(),
        "training/rollout_probs_diff_std": difference.std() if len(difference) > 1 else difference.new_zeros(()),
        "rollout_corr/kl": -log_ratio.mean(),
        "rollout_corr/k3_kl": (log_ratio.expm1() - log_ratio).mean(),
        "rollout_corr/training_ppl": trainer_log_ppl.exp().mean(),
        "rollout_corr/training_log_ppl": trainer_log_ppl.mean(),
        "rollout_corr/rollout_ppl": engine_log_ppl.exp().mean(),
        "rollout_corr/rollout_log_ppl": engine_log_ppl.mean(),
        "rollout_corr/log_ppl_diff": log_ppl_diff.mean(),
        "rollout_corr/log_ppl_abs_diff": log_ppl_diff.abs().mean(),
        "rollout_corr/log_ppl_diff_max": log_ppl_diff.max(),
        "rollout_corr/log_ppl_diff_min": log_ppl_diff.min(),
        "rollout_corr/ppl_ratio": log_ppl_diff.exp().mean(),
        "rollout_corr/chi2_token": (2 * bounded).exp().mean() - 1,
        "rollout_corr/chi2_seq": (2 * bounded_sum).exp().mean() - 1,
    }
    if (probabilities.amax(-1) > probabilities.amin(-1)).all():  # the correlation of a constant is undefined
        metrics["training/rollout_actor_probs_pearson_corr"] = torch.corrcoef(probabilities)[0, 1]
    return {name: float(value) for name, value in metrics.items()}
