"""Log-probabilities and entropies of response tokens. The full logits tensor is never materialized.

The output layer runs in chunks of tokens and is recomputed in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.image_processor import ImageInputs
from rlt_trainer.policy.forward import forward_responses
from rlt_trainer.policy.logit_chunk import LogitScale, compute_gradient, compute_log_probs, scale_logits

CHUNK_ELEMENTS = 2**25
"""Maximum number of logits in memory at a time on a CPU: 128 MiB in float32, about three times that in the backward
pass."""
GPU_CHUNK_ELEMENTS = 2**27
"""The same on a GPU: 512 MiB, and 883 tokens of a 152,000 vocabulary, enough for a matrix product at full speed."""
COMPILED_CHUNKS = 2
"""The factor for compiled chunks on a GPU. They have no tensors of this size but the logits, in float32 at most, and
their gradient in 16 bits: at most 6 bytes for each logit instead of 12. Fewer chunks move less memory: each one moves
12 bytes for each weight of the output layer, to add up its gradient."""


def response_log_probs(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    temperature: float,
    float32_head: bool = False,
    compiled_head: bool = False,
    packed: bool = False,
    group: dist.ProcessGroup | None = None,
    images: ImageInputs | None = None,
    ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token and entropy of its distribution: [B, T] in float32, 0 at padding.

    ids: [B, T, K], other tokens in its place. The first result then has the log-probabilities of all: [B, T, 1 + K].
    Both have a gradient. temperature: the sampling temperature, so that the values compare with the engine's.
    float32_head: model.castLmHeadToFp32. compiled_head: training.useTorchCompile.
    packed: without padding, for a model with packed_attention. group: the ranks that share each sequence.
    images: all prompts', for a vision-language model.
    """
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits = LogitScale.of(model.config, temperature, float32=float32_head, compiled=compiled_head)

    def head(hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return token_log_probs(hidden, output.weight, getattr(output, "bias", None), targets, logits)

    log_probs, entropy = forward_responses(model, sequences, head, packed=packed, group=group, images=images, ids=ids)
    return log_probs, entropy


def response_top_log_probs(
    model: PreTrainedModel,
    sequences: Sequences,
    *,
    k: int,
    vocabulary: int,
    temperature: float,
    float32_head: bool = False,
    packed: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """The k highest log-probabilities in the place of each response token, without gradient, and their tokens:
    [B, T, k] in float32 and int32, 0 at padding. Other arguments as for response_log_probs.

    vocabulary: tokens from this number on are not among the k, but have their part of the probability.
    """
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits = LogitScale.of(model.config, temperature, float32=float32_head)

    def head(hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return top_log_probs(hidden, output.weight, getattr(output, "bias", None), logits, k=k, vocabulary=vocabulary)

    log_probs, ids = forward_responses(model, sequences, head, packed=packed, group=group)
    return log_probs, ids


def token_log_probs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, logits: LogitScale
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, in their shape, and entropy of each distribution: [N]. float32 at least, with
    gradient.

    hidden: [N, H]; weight: [V, H]; bias: [V] or None; targets: [N], or [N, J] for J tokens in one place, int64.
    Memory: a chunk of logits for any N and J, and the gradient of the weights.
    """
    several = targets if targets.dim() == 2 else targets[:, None]
    log_probs, entropy = _TokenLogProbs.apply(hidden, weight, bias, several, logits)  # type: ignore[no-untyped-call]
    return log_probs.view(targets.shape), entropy


@torch.no_grad()
def top_log_probs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, logits: LogitScale, *, k: int, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """The k highest log-probabilities of the first `vocabulary` tokens, in descending order, and these tokens: [N, k]
    in float32 at least and in int32. Arguments and memory as for token_log_probs."""
    log_probs = hidden.new_empty(len(hidden), k, dtype=torch.promote_types(hidden.dtype, torch.float32))
    ids = hidden.new_empty(len(hidden), k, dtype=torch.int32)
    for part in _chunks(hidden, weight):
        scores, _ = scale_logits(_project(hidden[part], weight, bias, logits), logits.scale, logits.softcap)
        highest, ids[part] = scores[:, :vocabulary].topk(k)
        log_probs[part] = highest - scores.logsumexp(-1, keepdim=True)
    return log_probs, ids


class _TokenLogProbs(torch.autograd.Function):
    """With s = scale * cap(W h + b) and p = softmax(s): d log p_t / ds_i = [i = t] - p_i,
    d H / ds_i = -p_i (log p_i + H). Targets and log-probabilities are [N, J]."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, logits: LogitScale
    ) -> tuple[Tensor, Tensor]:
        precise = torch.promote_types(hidden.dtype, torch.float32)
        log_probs = hidden.new_empty(targets.shape, dtype=precise)
        entropy, normalizer = (hidden.new_empty(len(hidden), dtype=precise) for _ in range(2))
        for part in _chunks(hidden, weight, fused=_is_fused(hidden, targets, logits)):
            scores = _project(hidden[part], weight, bias, logits)
            log_probs[part], entropy[part], normalizer[part] = compute_log_probs(scores, targets[part], logits)
        ctx.set_materialize_grads(False)  # entropies without a gradient save passes over the logits
        ctx.save_for_backward(hidden, weight, bias, targets, entropy, normalizer)
        ctx.logits = logits
        return log_probs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy, normalizer = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        logits: LogitScale = ctx.logits
        if grad_log_probs is None:
            grad_log_probs = entropy.new_zeros(targets.shape)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=entropy.dtype) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=entropy.dtype) if bias is not None and needs_bias else None
        for part in _chunks(hidden, weight, fused=_is_fused(hidden, targets, logits)):
            gradient = compute_gradient(
                _project(hidden[part], weight, bias, logits),
                targets[part],
                logits,
                entropy[part],
                normalizer[part],
                grad_log_probs[part],
                None if grad_entropy is None else grad_entropy[part],
                hidden.dtype,
            )
            if grad_hidden is not None:
                grad_hidden[part] = gradient @ weight
            if grad_weight is not None:
                _add_product(grad_weight, gradient.T, hidden[part])
            if grad_bias is not None:
                grad_bias += gradient.sum(0)
            del gradient  # free it before the next chunk
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
        )


def _project(hidden: Tensor, weight: Tensor, bias: Tensor | None, logits: LogitScale) -> Tensor:
    """Return the output layer's result: [n, V]."""
    return (_project_precisely if logits.float32 else functional.linear)(hidden, weight, bias)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add `left @ right` to `total`, which has at least their precision."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)  # without memory for the product
    else:
        total += left @ right


def _project_precisely(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the output layer's result in float32 at least, as vLLM with head_dtype (LogitsProcessor._apply_head)."""
    if hidden.is_cuda and hidden.dtype != torch.float32:  # without a float32 copy of the weights
        scores = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
        return scores if bias is None else scores + bias
    precise = torch.promote_types(hidden.dtype, torch.float32)
    return functional.linear(hidden.to(precise), weight.to(precise), None if bias is None else bias.to(precise))


def _is_fused(hidden: Tensor, targets: Tensor, logits: LogitScale) -> bool:
    """Whether one kernel computes a chunk, with a gradient in 16 bits. Several targets in one place need a scatter."""
    return logits.compiled and targets.shape[1] == 1 and hidden.itemsize == 2


def _chunks(hidden: Tensor, weight: Tensor, *, fused: bool = False) -> list[slice]:
    size = max(1, count_chunk_logits(on_gpu=hidden.is_cuda, fused=fused) // len(weight))
    return [slice(start, start + size) for start in range(0, len(hidden), size)]


def count_chunk_logits(*, on_gpu: bool, fused: bool) -> int:
    """Return the maximum number of logits in a chunk. fused: whether one compiled kernel computes it."""
    return GPU_CHUNK_ELEMENTS * (COMPILED_CHUNKS if fused else 1) if on_gpu else CHUNK_ELEMENTS
