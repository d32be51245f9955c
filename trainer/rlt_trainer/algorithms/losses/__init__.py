"""Losses per token. The caller aggregates them."""

from __future__ import annotations

from collections.abc import Callable

from rlt_trainer.algorithms.losses.covariance import clip_cov, kl_cov
from rlt_trainer.algorithms.losses.distillation import distillation_advantages, forward_kl_topk
from rlt_trainer.algorithms.losses.divergence import dppo_kl, dppo_tv
from rlt_trainer.algorithms.losses.inputs import LossInputs, TokenLoss
from rlt_trainer.algorithms.losses.kl_term import kl_loss
from rlt_trainer.algorithms.losses.policy import cispo, geo_mean, gpg, gspo, sapo, vanilla
from rlt_trainer.algorithms.losses.value import value_loss

__all__ = [
    "POLICY_LOSSES",
    "LossInputs",
    "PolicyLossFunction",
    "TokenLoss",
    "distillation_advantages",
    "forward_kl_topk",
    "kl_loss",
    "value_loss",
]

PolicyLossFunction = Callable[[LossInputs], TokenLoss]

POLICY_LOSSES: dict[str, PolicyLossFunction] = {
    "vanilla": vanilla,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "geo_mean": geo_mean,
    "gpg": gpg,
    "dppo_tv": dppo_tv,
    "dppo_kl": dppo_kl,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
}
"""Policy losses by verl's names (verl 0.9.1, policy_loss.loss_mode)."""
