"""FLOPs of a decoder transformer. Standard library only.

Each weight that multiplies a token costs 2 FLOPs forward and 4 backward: 6N of PaLM (arXiv 2204.02311, appendix B) and
of verl's flops counter. Attention adds 4 FLOPs forward for each dimension of the heads and each pair of tokens (scores
and values). The mask is causal: a sequence of S tokens has S^2/2 pairs (as in verl; PaLM counts S^2). An embedding
lookup counts 0 (verl counts it), and the output matrix counts only for tokens whose logits are computed. Recomputation
by activation checkpointing does not count: these are the model's FLOPs, not the hardware's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DENSE_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
"""model_type of the supported dense decoders: attention, and a gated MLP of three matrices."""
MOE_MODEL_TYPES = {"mixtral": "num_local_experts", "qwen3_moe": "num_experts"}
"""model_type of the supported decoders with a mixture of experts in each layer -> config field of the number of
experts."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that determine its FLOPs."""

    weights: int
    """Number of weights in all layers that multiply one token. Experts that the token is not routed to do not count."""
    head_weights: int
    """Number of weights in the output matrix."""
    attention: tuple[tuple[int, int | None], ...]
    """For each layer: number of heads x head dimension, and the sliding window in tokens or None."""


def find_shape(config: Any) -> Shape | None:
    """Return the shape of a transformers config. None if the architecture is not supported."""
    if config.model_type not in DENSE_MODEL_TYPES | MOE_MODEL_TYPES.keys():
        return None
    hidden, layers, heads = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    attention = hidden * head_dim * (2 * heads + 2 * config.num_key_value_heads)
    mlp = 3 * hidden * config.intermediate_size
    if config.model_type in MOE_MODEL_TYPES:
        if getattr(config, "decoder_sparse_step", 1) != 1 or getattr(config, "mlp_only_layers", []):
            return None
        width = getattr(config, "moe_intermediate_size", config.intermediate_size)
        router = hidden * getattr(config, MOE_MODEL_TYPES[config.model_type])
        mlp = router + config.num_experts_per_tok * 3 * hidden * width
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * layers
    windows = [window if kind == "sliding_attention" else None for kind in kinds]
    return Shape(
        weights=layers * (attention + mlp),
        head_weights=hidden * config.vocab_size,
        attention=tuple((heads * head_dim, window) for window in windows),
    )


def count_forward_flops(shape: Shape, lengths: Sequence[int], *, logits: int | None = None) -> float:
    """Count the FLOPs of a forward pass over sequences of these lengths in tokens.

    logits: number of tokens whose logits are computed. Default: all.
    """
    return _count_linear(shape, lengths, logits) + _count_attention(shape, lengths)


def count_training_flops(
    shape: Shape, lengths: Sequence[int], *, logits: int | None = None, lora: bool = False
) -> float:
    """Count the FLOPs of a forward and a backward pass. With `lora` the frozen weights have no gradient: 4N. The few
    weights of the adapters do not count."""
    return (2 if lora else 3) * _count_linear(shape, lengths, logits) + 3 * _count_attention(shape, lengths)


def _count_linear(shape: Shape, lengths: Sequence[int], logits: int | None) -> float:
    tokens = sum(lengths)
    return 2.0 * shape.weights * tokens + 2.0 * shape.head_weights * (tokens if logits is None else logits)


def _count_attention(shape: Shape, lengths: Sequence[int]) -> float:
    """Count 4 FLOPs for each dimension and each pair of a token and an earlier one, half for a token with itself."""
    by_window: Counter[int | None] = Counter()
    for width, window in shape.attention:
        by_window[window] += width
    return sum(4.0 * width * _count_pairs(length, window) for window, width in by_window.items() for length in lengths)


def _count_pairs(length: int, window: int | None) -> float:
    if window is None or length <= window:
        return length**2 / 2
    return window**2 / 2 + (length - window) * window
