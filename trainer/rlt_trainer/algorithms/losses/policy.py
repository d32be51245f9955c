"""Policy losses per token. r is the token's probability divided by that at the start of the step."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlt_trainer.algorithms.losses.inputs import LossInputs, TokenLoss
from rlt_trainer.algorithms.masking import row_means


def vanilla(inputs: LossInputs) -> TokenLoss:
    """PPO's clipped surrogate (arXiv 1707.06347, equation 7): max(-A r, -A clip(r, 1 - low, 1 + high)).

    With clip_ratio_c at most -A c where A < 0 (dual clip, arXiv 1912.09729): compute_policy_loss_vanilla in verl 0.9.1.
    """
    log_ratio = bounded_log_ratio(inputs)
    loss, clipped = _clipped(log_ratio.exp(), inputs)
    lower = torch.zeros_like(clipped)
    if inputs.clip_ratio_c is not None:
        ceiling = -inputs.advantages * inputs.clip_ratio_c
        lower = (inputs.advantages < 0) & (loss > ceiling)
        loss = torch.where(inputs.advantages < 0, torch.minimum(loss, ceiling), loss)
    return build_token_loss(loss, inputs, clipped, lower, kl=-log_ratio)


def gspo(inputs: LossInputs) -> TokenLoss:
    """The clipped surrogate with the response's ratio: the geometric mean over its tokens (GSPO, arXiv 2507.18071).

    Each token has the value of the response's ratio and the gradient of the token's log-probability (GSPO-token in the
    paper). This equals the gradient of the sequence form if the advantage is constant over the response. Rows must
    contain complete responses.
    """
    mean = row_means(inputs.log_ratio, inputs.mask).detach()[:, None]
    log_ratio = (inputs.log_probs - inputs.log_probs.detach() + mean).clamp(max=inputs.bounds.sequence_log_ratio_bound)
    loss, clipped = _clipped(log_ratio.exp(), inputs)
    return build_token_loss(loss, inputs, clipped, torch.zeros_like(clipped), kl=-inputs.log_ratio)


def cispo(inputs: LossInputs) -> TokenLoss:
    """-A clip(r) log p, without gradient through clip(r): every token has a gradient (CISPO, arXiv 2506.13585).

    verl clips r to 1 - low and 1 + high; TRL to at most high. Raises ValueError if TRL's high is below 1.
    """
    log_ratio = bounded_log_ratio(inputs)
    ratio = log_ratio.exp().detach()
    if inputs.bounds.cispo_has_upper_bound_only:
        if inputs.clip_ratio_high < 1:
            raise ValueError(
                f"algorithm.clipRatioHigh: {inputs.clip_ratio_high} is below 1. In TRL's convention it is the maximum "
                "ratio of cispo, not a distance from 1: use 5.0, as TRL's recipe does."
            )
        weight = ratio.clamp(max=inputs.clip_ratio_high)
    else:
        weight = ratio.clamp(1 - inputs.clip_ratio_low, 1 + inputs.clip_ratio_high)
    clipped = ratio != weight
    loss = -inputs.advantages * weight * inputs.log_probs
    return build_token_loss(loss, inputs, clipped, torch.zeros_like(clipped), kl=-log_ratio)


def sapo(inputs: LossInputs) -> TokenLoss:
    """-A sigmoid(tau (r - 1)) 4 / tau: a soft gate instead of a clip (SAPO, arXiv 2511.20347)."""
    log_ratio = bounded_log_ratio(inputs)
    tau = torch.where(inputs.advantages > 0, inputs.tau_pos, inputs.tau_neg).to(log_ratio.dtype)
    loss = -inputs.advantages * torch.sigmoid(tau * (log_ratio.exp() - 1)) * 4 / tau
    never = torch.zeros_like(inputs.mask)
    return build_token_loss(loss, inputs, never, never, kl=-log_ratio)


def geo_mean(inputs: LossInputs) -> TokenLoss:
    """-A r with the geometric mean r of the clipped ratios in a response (GMPO, arXiv 2507.20673, equation 4).

    Each log ratio is clipped to -low and high, on the side where its advantage makes the loss smaller. A is the mean
    advantage, and the weight the geometric mean of the weights, of the response: compute_policy_loss_geo_mean in verl
    0.9.1. Each token has the loss of its response. Rows must contain complete responses.
    """
    log_ratio = inputs.log_ratio
    bounded = log_ratio.clamp(-inputs.clip_ratio_low, inputs.clip_ratio_high)
    sign = inputs.advantages.sign()
    ratio = row_means(sign * torch.minimum(sign * log_ratio, sign * bounded), inputs.mask).exp()
    loss = -row_means(inputs.advantages, inputs.mask) * ratio
    if inputs.weights is not None:
        loss = loss * row_means((inputs.weights + 1e-10).log(), inputs.mask).exp()
    clipped = log_ratio != bounded
    rising = clipped & (inputs.advantages > 0)
    falling = clipped & (inputs.advantages < 0)
    unweighted = replace(inputs, weights=None)
    return build_token_loss(loss[:, None].expand(inputs.mask.shape), unweighted, rising, falling, kl=-log_ratio)


def gpg(inputs: LossInputs) -> TokenLoss:
    """-A log p: the policy gradient without ratio and clip (GPG, arXiv 2504.02546; compute_policy_loss_gpg in verl
    0.9.1)."""
    return TokenLoss(inputs.weighted(-inputs.advantages * inputs.log_probs), {})


def bounded_log_ratio(inputs: LossInputs) -> Tensor:
    """Return the log ratio [B, T] within the bounds of the convention, with gradient."""
    return inputs.log_ratio.clamp(-inputs.bounds.log_ratio_bound, inputs.bounds.log_ratio_bound)


def _clipped(ratio: Tensor, inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Return the clipped surrogate, and where the clip is active."""
    plain = -inputs.advantages * ratio
    clipped = -inputs.advantages * ratio.clamp(1 - inputs.clip_ratio_low, 1 + inputs.clip_ratio_high)
    return torch.maximum(plain, clipped), clipped > plain


def build_token_loss(loss: Tensor, inputs: LossInputs, clipped: Tensor, lower: Tensor, *, kl: Tensor) -> TokenLoss:
    """Return the weighted `loss` [B, T], with verl's metrics of the clip and of the distance from the old policy."""
    metrics = {"actor/pg_clipfrac": clipped, "actor/pg_clipfrac_lower": lower, "actor/ppo_kl": kl}
    return TokenLoss(inputs.weighted(loss), {name: value.detach().to(loss.dtype) for name, value in metrics.items()})
