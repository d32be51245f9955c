"""On-policy distillation: the divergence from a teacher as the advantage of each token, or as its loss."""

from __future__ import annotations

from torch import Tensor

from rlt_trainer.algorithms.losses.inputs import TokenLoss
from rlt_trainer.algorithms.masking import apply_mask


def distillation_advantages(log_probs: Tensor, teacher_log_probs: Tensor, mask: Tensor, *, max_clamp: float) -> Tensor:
    """Return the teacher's log-probability minus the policy's, within +-max_clamp: [B, T], without gradient, 0 outside
    the mask.

    These advantages have the policy gradient of KL(policy || teacher) for each next token, because the policy
    sampled the tokens. verl 0.9.1, verl/trainer/distillation/losses.py, with loss_mode k1 and use_policy_gradient;
    https://thinkingmachines.ai/blog/on-policy-distillation.
    """
    return apply_mask(teacher_log_probs - log_probs.detach(), mask).clamp(-max_clamp, max_clamp)


def forward_kl_topk(
    log_probs: Tensor, teacher_log_probs: Tensor, mask: Tensor, *, max_clamp: float, min_log_prob: float | None = None
) -> TokenLoss:
    """Return sum_k p_k (log p_k - log q_k) over the teacher's K most likely tokens, within 0 and max_clamp.

    log_probs [B, T, K]: log q, of the policy, with gradient; teacher_log_probs [B, T, K]: log p; mask [B, T].
    min_log_prob: lower log-probabilities of both count as this value. Default: no minimum.

    The other tokens are left out, and neither distribution is normalized again: the sum is negative if the policy gives
    these tokens more probability than the teacher does, and then loss and gradient are 0. compute_forward_kl_topk in
    verl 0.9.1, verl/trainer/distillation/losses.py and fsdp/losses.py, with loss_mode forward_kl_topk and without
    use_policy_gradient (a supervised loss: GKD, arXiv 2306.13649, with a divergence of top tokens).
    """
    log_q, log_p = (apply_mask(each, mask[..., None]) for each in (log_probs, teacher_log_probs))
    metrics = {
        "distillation/student_mass": log_q.detach().exp().sum(-1),
        "distillation/teacher_mass": log_p.exp().sum(-1),
    }
    if min_log_prob is not None:
        log_q, log_p = (each.clamp(min=min_log_prob) for each in (log_q, log_p))
    divergence = (log_p.exp() * (log_p - log_q)).sum(-1)
    return TokenLoss(divergence.clamp(0, max_clamp), metrics)
