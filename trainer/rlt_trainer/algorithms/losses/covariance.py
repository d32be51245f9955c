"""Losses that treat the tokens selected by their covariance differently (arXiv 2505.22617).

algorithms/covariance.py selects them, over the whole mini-batch.
"""

from __future__ import annotations

import torch

from rlt_trainer.algorithms.losses.inputs import LossInputs, TokenLoss


def clip_cov(inputs: LossInputs) -> TokenLoss:
    """max(-A r, -A clip(r, 1 - low, 1 + high)), and 0 for the selected tokens: Clip-Cov.

    compute_policy_loss_clip_cov in verl 0.9.1, whose pg_clipfrac is the share of the selected tokens.
    """
    ratio = inputs.log_ratio.exp()
    bounded = ratio.clamp(1 - inputs.clip_ratio_low, 1 + inputs.clip_ratio_high)
    loss = torch.maximum(-inputs.advantages * ratio, -inputs.advantages * bounded)
    metrics = {"actor/pg_clipfrac": inputs.selected.to(loss.dtype), "actor/ppo_kl": -inputs.log_ratio.detach()}
    return TokenLoss(inputs.weighted(loss * ~inputs.selected), metrics)


def kl_cov(inputs: LossInputs) -> TokenLoss:
    """-A r, plus ppo_kl_coef |log r| for the selected tokens: KL-Cov, without a clip.

    compute_policy_loss_kl_cov in verl 0.9.1, whose ppo_kl is the mean of |log r|.
    """
    distance = inputs.log_ratio.abs()
    loss = -inputs.advantages * inputs.log_ratio.exp() + inputs.ppo_kl_coef * distance * inputs.selected
    return TokenLoss(inputs.weighted(loss), {"actor/ppo_kl": distance.detach()})
