"""The KL term of the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rlt_trainer.algorithms.kl import kl_divergence
from rlt_trainer.algorithms.losses.inputs import LossInputs
from rlt_trainer.algorithms.masking import apply_mask

if TYPE_CHECKING:  # not at run time: bench/train_step.py runs without pydantic
    from rlt_api.blocks.algorithm import LossKlEstimator


def kl_loss(inputs: LossInputs, ref_log_probs: Tensor, estimator: LossKlEstimator = "low_var_kl") -> Tensor:
    """Return the divergence from the reference per token: [B, T] with gradient, before its coefficient.

    ref_log_probs: [B, T]. In TRL's convention it is multiplied by the token's ratio, which corrects for tokens that the
    policy sampled before the update. The weights of the rollout correction do not apply.
    """
    reference = apply_mask(ref_log_probs, inputs.mask)
    divergence = kl_divergence(inputs.log_probs, reference, estimator, convention=inputs.convention)
    return divergence * inputs.log_ratio.exp() if inputs.bounds.kl_is_weighted else divergence
