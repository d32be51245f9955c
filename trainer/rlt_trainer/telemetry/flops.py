"""Arithmetic that a decoder transformer needs, and how much of a device's peak that is. Standard library only.

Every weight that multiplies a token costs 2 FLOPs forward and 4 backward: 6N of PaLM (arXiv 2204.02311, appendix B)
and of verl's flops counter. Attention adds, for scores and values of each pair of tokens, 4 FLOPs forward for each
dimension of its heads; the mask is causal, so that a sequence of S tokens has S^2/2 pairs (verl too; PaLM counts S^2).
Looking up an embedding is no arithmetic (verl counts it), and the output matrix counts only where logits are computed.
What is computed again under activation checkpointing is not counted: it is the model's arithmetic, not the hardware's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GATED = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
"""model_type of the dense decoders of which `shape_of` is known to be right: attention, and a gated MLP of three
matrices."""
MIXTURES = {"mixtral": "num_local_experts", "qwen3_moe": "num_experts"}
"""The same with a mixture of experts in each layer, and the config's name for their number."""


@dataclass(frozen=True)
class Shape:
    """What the arithmetic of a model follows from."""

    weights: int
    """Weights of all layers that multiply a token, those of experts that it does not go to left out."""
    head_weights: int
    """Weights of the output matrix."""
    attention: tuple[tuple[int, int | None], ...]
    """For each layer, heads x dimensions of a head, and the sliding window in tokens if it has one."""


def shape_of(config: Any) -> Shape | None:
    """The shape of a transformers config; None for an architecture that is not known here."""
    if config.model_type not in GATED | MIXTURES.keys():
        return None
    hidden, layers, heads = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    attention = hidden * head_dim * (2 * heads + 2 * config.num_key_value_heads)
    mlp = 3 * hidden * config.intermediate_size
    if config.model_type in MIXTURES:
        if getattr(config, "decoder_sparse_step", 1) != 1 or getattr(config, "mlp_only_layers", []):
            return None
        width = getattr(config, "moe_intermediate_size", config.intermediate_size)
        router = hidden * getattr(config, MIXTURES[config.model_type])
        mlp = router + config.num_experts_per_tok * 3 * hidden * width
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * layers
    windows = [window if kind == "sliding_attention" else None for kind in kinds]
    return Shape(
        weights=layers * (attention + mlp),
        head_weights=hidden * config.vocab_size,
        attention=tuple((heads * head_dim, window) for window in windows),
    )


def forward_flops(shape: Shape, lengths: Sequence[int], *, logits: int | None = None) -> float:
    """One pass over sequences of these lengths in tokens. `logits`: of so many tokens; default: of all."""
    tokens = sum(lengths)
    return 2.0 * shape.weights * tokens + 2.0 * shape.head_weights * _or(logits, tokens) + _attention(shape, lengths)


def training_flops(shape: Shape, lengths: Sequence[int], *, logits: int | None = None, lora: bool = False) -> float:
    """One pass forward and back. With `lora` the weights are frozen and have no gradient: 4N; the adapters' own few
    weights are left out."""
    tokens = sum(lengths)
    linear = 2.0 * shape.weights * tokens + 2.0 * shape.head_weights * _or(logits, tokens)
    return (2 if lora else 3) * linear + 3 * _attention(shape, lengths)


def _attention(shape: Shape, lengths: Sequence[int]) -> float:
    """4 FLOPs for each dimension and each pair of a token with itself, halved, or with one before it."""
    by_window: Counter[int | None] = Counter()
    for width, window in shape.attention:
        by_window[window] += width
    return sum(4.0 * width * _pairs(length, window) for window, width in by_window.items() for length in lengths)


def _pairs(length: int, window: int | None) -> float:
    if window is None or length <= window:
        return length**2 / 2
    return window**2 / 2 + (length - window) * window


def _or(given: int | None, default: int) -> int:
    return default if given is None else given
