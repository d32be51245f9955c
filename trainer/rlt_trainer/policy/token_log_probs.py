"""Log-probabilities of tokens without the logits of all tokens: the output layer in chunks, computed again backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig

CHUNK_ELEMENTS = 2**25
"""Logits that exist at a time: 128 MiB in float32, and about three times that in the backward pass."""


@dataclass(frozen=True)
class LogitScale:
    """What is done to the output layer's result before the softmax: `scale * cap(logits)`."""

    scale: float = 1.0
    """1 / temperature, times the model's own factor."""
    softcap: float | None = None
    """c in c * tanh(logits / c), before the scale. None: no cap."""

    @classmethod
    def of(cls, config: PreTrainedConfig, temperature: float) -> LogitScale:
        """As the models of transformers 5 do it: Cohere multiplies, Granite divides, Gemma caps."""
        text = config.get_text_config()
        factor = (getattr(text, "logit_scale", None) or 1.0) / (getattr(text, "logits_scaling", None) or 1.0)
        return cls(factor / temperature, getattr(text, "final_logit_softcapping", None))


def token_log_probs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, logits: LogitScale
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution: [N] each, float32 at least, with gradient.

    hidden: [N, H]; weight: [V, H]; bias: [V] or None; targets: [N], int64.
    Memory is that of CHUNK_ELEMENTS logits, whatever N is, and the gradient of the weights.
    """
    log_probs, entropy = _TokenLogProbs.apply(hidden, weight, bias, targets, logits)  # type: ignore[no-untyped-call]
    return log_probs, entropy


class _TokenLogProbs(torch.autograd.Function):
    """With s = scale * cap(W h + b) and p = softmax(s): d log p_t / ds_i = [i = t] - p_i,
    d H / ds_i = -p_i (log p_i + H)."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, logits: LogitScale
    ) -> tuple[Tensor, Tensor]:
        precise = torch.promote_types(hidden.dtype, torch.float32)
        log_probs, entropy, normaliser = (hidden.new_empty(len(hidden), dtype=precise) for _ in range(3))
        for part in _chunks(len(hidden), len(weight)):
            log_probs[part], entropy[part], normaliser[part] = _chunk(hidden[part], weight, bias, targets[part], logits)
        ctx.save_for_backward(hidden, weight, bias, targets, entropy, normaliser)
        ctx.logits = logits
        return log_probs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy, normaliser = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        logits: LogitScale = ctx.logits
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=entropy.dtype) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=entropy.dtype) if bias is not None and wants_bias else None
        for part in _chunks(len(hidden), len(weight)):
            gradient = _chunk_gradient(
                hidden[part],
                weight,
                bias,
                targets[part],
                logits,
                entropy[part],
                normaliser[part],
                grad_log_probs[part],
                grad_entropy[part],
            )
            if grad_hidden is not None:
                grad_hidden[part] = gradient @ weight
            if grad_weight is not None:
                grad_weight += gradient.T @ hidden[part]
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
            del gradient  # before the next one is made
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
        )


def _chunk(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, logits: LogitScale
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies, and the logarithms of the sums that normalise them: [n] each."""
    scores, _ = _scores(hidden, weight, bias, logits)
    normaliser = scores.logsumexp(-1)
    log_probs = scores.gather(-1, targets[:, None]).squeeze(-1) - normaliser
    mean_score = (scores - normaliser[:, None]).exp_().mul_(scores).sum(-1)
    return log_probs, normaliser - mean_score, normaliser


def _chunk_gradient(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    logits: LogitScale,
    entropy: Tensor,
    normaliser: Tensor,
    grad_log_probs: Tensor,
    grad_entropy: Tensor,
) -> Tensor:
    """The gradient of the output layer's result: [n, V], in the type of `hidden`.

    With g_lp and g_H for the gradients of log-probability and entropy: dL/ds = p (-g_H (log p + H) - g_lp), and g_lp
    more at the target. Everything but p and the slope is computed in the memory of the scores.
    """
    scores, slope = _scores(hidden, weight, bias, logits)
    log_p = scores.sub_(normaliser[:, None])
    p = log_p.exp()
    per_p = log_p.add_(entropy[:, None]).mul_(-grad_entropy[:, None]).sub_(grad_log_probs[:, None])
    gradient = per_p.mul_(p).scatter_add_(-1, targets[:, None], grad_log_probs[:, None])
    gradient.mul_(logits.scale if slope is None else slope.mul_(logits.scale))  # from s to the output layer's result
    return gradient.to(hidden.dtype)


def _scores(hidden: Tensor, weight: Tensor, bias: Tensor | None, logits: LogitScale) -> tuple[Tensor, Tensor | None]:
    """What the softmax is taken of [n, V], and the slope of the cap there."""
    scores = functional.linear(hidden, weight, bias).to(torch.promote_types(hidden.dtype, torch.float32))
    if logits.softcap is None:
        return scores.mul_(logits.scale), None
    capped = torch.tanh(scores / logits.softcap)
    return capped * (logits.softcap * logits.scale), 1 - capped**2


def _chunks(tokens: int, vocabulary: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // vocabulary)
    return [slice(start, start + size) for start in range(0, tokens, size)]
