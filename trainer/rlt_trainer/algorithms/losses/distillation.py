"""On-policy distillation: the divergence from a teacher as the advantage of each token."""

from __future__ import annotations

from torch import Tensor

from rlt_trainer.algorithms.masking import apply_mask


def distillation_advantages(log_probs: Tensor, teacher_log_probs: Tensor, mask: Tensor, *, max_clamp: float) -> Tensor:
    """Return the teacher's log-probability minus the policy's, within +-max_clamp: [B, T], without gradient, 0 outside
    the mask.

    These advantages have the policy gradient of KL(policy || teacher) for each next token, because the policy
    sampled the tokens. verl 0.9.1, verl/trainer/distillation/losses.py, with loss_mode k1 and use_policy_gradient;
    https://thinkingmachines.ai/blog/on-policy-distillation.
    """
    return apply_mask(teacher_log_probs - log_probs.detach(), mask).clamp(-max_clamp, max_clamp)
