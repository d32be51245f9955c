"""The KL term of the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.losses.inputs import LossInputs
from rlt_trainer.algorithms.masking import keep

if TYPE_CHECKING:  # at run time torch is enough: bench/train_step.py needs no pydantic
    from rlt_api.blocks.algorithm import LossKlEstimator


def kl_loss(inputs: LossInputs, ref_log_probs: Tensor, estimator: LossKlEstimator = "low_var_kl") -> Tensor:
    """The divergence from the reference per token: [B, T] with gradient, before its coefficient.

    ref_log_probs: [B, T]. In TRL's convention times the token's ratio: the tokens come from the policy of the step's
    start, and this weighs them as if from the present one. The rollout correction's weights have no part in it.
    """
    reference = keep(ref_log_probs, inputs.mask)
    divergence = kl_divergence(inputs.log_probs, reference, estimator, convention=inputs.convention)
    return divergence * inputs.log_ratio.exp() if inputs.bounds.kl_is_weighted else divergence
