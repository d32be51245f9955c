"""Softmax, entropy and gradient of the logits in a chunk, eager or compiled.

Each eager operation reads and writes all logits of the chunk. torch.compile fuses them. Both forms are the same
functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig


@dataclass(frozen=True)
class LogitScale:
    """The input of the softmax: `scale * cap(logits)`."""

    scale: float = 1.0
    """1 / temperature, multiplied by the factor in the model's config."""
    softcap: float | None = None
    """c in c * tanh(logits / c), applied before the scale. None: no cap."""
    float32: bool = False
    """Whether the output layer's sums of products stay in float32, instead of its input's dtype."""
    compiled: bool = False
    """Whether the chunks are computed by torch.compile."""

    @classmethod
    def of(
        cls, config: PreTrainedConfig, temperature: float, *, float32: bool = False, compiled: bool = False
    ) -> LogitScale:
        """Read it from `config`, as transformers 5 does. Cohere and Falcon-H1 multiply, Granite divides, Gemma caps."""
        text = config.get_text_config()

        def read(name: str) -> float:
            return float(getattr(text, name, None) or 1.0)

        factor = read("logit_scale") * read("lm_head_multiplier") / read("logits_mup_width_multiplier")
        scaling = read("logits_scaling")
        factor *= scaling if text.model_type == "hyperclovax" else 1 / scaling
        return cls(factor / temperature, getattr(text, "final_logit_softcapping", None), float32, compiled)


def compute_log_probs(logits: Tensor, targets: Tensor, scale: LogitScale) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities [n, J], entropies, and the logarithms of the softmax denominators: [n] each, in float32
    at least.

    logits: [n, V], the memory of which may be used; targets: [n, J].
    """
    function = _compiled_log_probs if scale.compiled else _compute_log_probs
    return function(logits, targets, scale.scale, scale.softcap)


def compute_gradient(
    logits: Tensor,
    targets: Tensor,
    scale: LogitScale,
    entropy: Tensor,
    normalizer: Tensor,
    grad_log_probs: Tensor,
    grad_entropy: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return the gradient of the logits: [n, V] in `dtype`.

    With g_lp and g_H the gradients of log-probabilities and entropy: dL/ds = p (-g_H (log p + H) - sum g_lp), plus g_lp
    at each target. All but p, which the entropies alone need, and the slope is computed in place, in the memory of the
    scores.
    """
    function = _compiled_gradient if scale.compiled else _compute_gradient
    return function(
        logits, targets, scale.scale, scale.softcap, entropy, normalizer, grad_log_probs, grad_entropy, dtype
    )


def scale_logits(logits: Tensor, scale: float, softcap: float | None) -> tuple[Tensor, Tensor | None]:
    """Return the input of the softmax [n, V] in float32 at least, and the derivative of the cap."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    # The compiler would copy what is computed in place back to the logits.
    scores = logits.to(precise, copy=torch.compiler.is_compiling())
    if softcap is None:
        return scores if scale == 1 else scores.mul_(scale), None
    capped = torch.tanh(scores / softcap)
    return capped * (softcap * scale), 1 - capped**2


def _compute_log_probs(
    logits: Tensor, targets: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    scores, _ = scale_logits(logits, scale, softcap)
    maximum = scores.amax(-1)
    weights = (scores - maximum[:, None]).exp_()  # of the softmax, before their sum divides them
    total = weights.sum(-1)
    normalizer = maximum + total.log()
    log_probs = scores.gather(-1, targets) - normalizer[:, None]
    return log_probs, normalizer - weights.mul_(scores).sum(-1) / total, normalizer


def _compute_gradient(
    logits: Tensor,
    targets: Tensor,
    scale: float,
    softcap: float | None,
    entropy: Tensor,
    normalizer: Tensor,
    grad_log_probs: Tensor,
    grad_entropy: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    total = grad_log_probs.sum(-1, keepdim=True)
    scores, slope = scale_logits(logits, scale, softcap)
    log_p = scores.sub_(normalizer[:, None])
    if grad_entropy is None:
        gradient = log_p.exp_().mul_(-total)
    else:
        p = log_p.exp()
        per_p = log_p.add_(entropy[:, None]).mul_(-grad_entropy[:, None]).sub_(total)
        gradient = per_p.mul_(p)
    if torch.compiler.is_compiling() and targets.shape[1] == 1:  # a scatter is not fused with the rest
        tokens = torch.arange(gradient.shape[1], device=gradient.device)
        gradient = gradient + torch.where(tokens == targets, grad_log_probs, 0)
    else:
        gradient.scatter_add_(-1, targets, grad_log_probs)
    if slope is not None:
        gradient.mul_(slope.mul_(scale))  # chain rule from s to the logits
    elif scale != 1:
        gradient.mul_(scale)
    return gradient.to(dtype)


_compiled_log_probs = torch.compile(_compute_log_probs, dynamic=True)
_compiled_gradient = torch.compile(_compute_gradient, dynamic=True)
