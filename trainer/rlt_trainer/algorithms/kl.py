"""Estimates of the KL divergence between the policy and its reference."""

from __future__ import annotations

from torch import Tensor


def k3(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """Schulman's k3 per token, never negative: exp(x) - x - 1 with x = ref - current, any shape.

    An unbiased estimate of KL(policy || reference) for tokens sampled from the policy, of low variance
    (http://joschu.net/blog/kl-approx.html). Clamped as verl 0.9.1 clamps its low_var_kl: x to +-20, the result to +-10.
    """
    x = (ref_log_probs - log_probs).clamp(-20.0, 20.0)
    return (x.exp() - x - 1).clamp(-10.0, 10.0)
