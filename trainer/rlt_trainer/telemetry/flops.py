"""FLOPs of a decoder transformer. Standard library only.

Each weight that multiplies a token costs 2 FLOPs forward and 4 backward: 6N of PaLM (arXiv 2204.02311, appendix B) and
of verl's flops counter. Attention adds 4 FLOPs forward for each dimension of the heads and each pair of tokens (scores
and values). The mask is causal: a sequence of S tokens has S^2/2 pairs (as in verl; PaLM counts S^2). Linear attention
counts its recurrence (the gated delta rule, arXiv 2412.06464), not the larger products of its chunked form. An
embedding lookup counts 0 (verl counts it), and the output matrix counts only for tokens whose logits are computed.
Recomputation by activation checkpointing does not count: these are the model's FLOPs, not the hardware's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""As rlt_api.rules.model_families.NUMBER_OF_EXPERTS, which is not in the standard library."""
DENSE_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
"""model_type of the supported dense decoders: attention, and a gated MLP of three matrices."""
MOE_MODEL_TYPES = frozenset(
    {
        *("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text"),
        *("deepseek_v3", "glm4_moe", "gpt_oss", "llama4_text"),
    }
)
"""model_type of the supported decoders with gated experts, in all or some layers."""
GATED_ATTENTION = ("qwen3_next", "qwen3_5_moe_text")
"""model_type of the decoders whose query projection also returns a gate for each dimension of the heads."""


@dataclass(frozen=True)
class Attention:
    """The attention of a layer."""

    width: int
    """Number of heads x the mean dimension of a key and a value."""
    window: int | None = None
    """Number of tokens that a token attends to. None: itself and all before it."""
    is_chunked: bool = False
    """Whether the window does not slide: a token attends within its chunk (Llama 4)."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that determine its FLOPs."""

    weights: int
    """Number of weights in all layers that multiply one token. Experts that the token is not routed to do not count."""
    head_weights: int
    """Number of weights in the output matrix."""
    attention: tuple[Attention, ...]
    """Of each layer with attention."""
    state: int = 0
    """Number of elements in the recurrent states of all layers with linear attention."""


def find_shape(config: Any) -> Shape | None:
    """Return the shape of a transformers config's text decoder. None if the architecture is not supported."""
    config = config.get_text_config()
    if config.model_type not in DENSE_MODEL_TYPES | MOE_MODEL_TYPES:
        return None
    window = getattr(config, "sliding_window", None)
    layers = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * layers
    weights = [_count_mixer_weights(config, kind) + _count_mlp_weights(config, i) for i, kind in enumerate(kinds)]
    return Shape(
        weights=sum(weights),
        head_weights=config.hidden_size * config.vocab_size,
        attention=tuple(_list_attention(config, kinds)),
        state=_count_state(config) * kinds.count("linear_attention"),
    )


def _list_attention(config: Any, kinds: Sequence[str]) -> Iterator[Attention]:
    keys, values = _find_head_dimensions(config)
    width = config.num_attention_heads * (keys + values) // 2
    for kind in kinds:
        if kind == "chunked_attention":
            yield Attention(width, config.attention_chunk_size, is_chunked=True)
        elif kind != "linear_attention":
            yield Attention(width, config.sliding_window if kind == "sliding_attention" else None)


def _find_head_dimensions(config: Any) -> tuple[int, int]:
    """Return the dimensions of a head's key and value."""
    if hasattr(config, "kv_lora_rank"):
        return config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return head_dim, head_dim


def _count_mixer_weights(config: Any, kind: str) -> int:
    """Count the weights of a layer's attention, or of the linear attention in its place."""
    hidden = config.hidden_size
    heads = config.num_attention_heads
    if kind == "linear_attention":  # a gated delta net: queries, keys, values and gate, decay and beta, output
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        convolution = (2 * keys + values) * config.linear_conv_kernel_dim
        return int(hidden * (2 * keys + 3 * values + 2 * config.linear_num_value_heads) + convolution)
    keys, values = _find_head_dimensions(config)
    if hasattr(config, "kv_lora_rank"):  # multi-head latent attention (arXiv 2405.04434)
        rank = config.q_lora_rank
        latent = config.kv_lora_rank
        queries = hidden * heads * keys if rank is None else rank * (hidden + heads * keys)
        rotated = config.qk_rope_head_dim
        return int(
            queries + hidden * (latent + rotated) + latent * heads * (keys - rotated + values) + heads * values * hidden
        )
    gates = heads if config.model_type in GATED_ATTENTION else 0
    return int(hidden * keys * (2 * heads + gates + 2 * config.num_key_value_heads))


def _count_mlp_weights(config: Any, layer: int) -> int:
    """Count the weights of an MLP, or of the router, the experts of one token and the shared experts."""
    hidden = config.hidden_size
    if not _has_experts(config, layer):
        return int(3 * hidden * (getattr(config, "intermediate_size_mlp", None) or config.intermediate_size))
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    shared = getattr(config, "shared_expert_intermediate_size", None)
    gate = hidden if shared else 0
    if shared is None:
        shared = width * (1 if config.model_type == "llama4_text" else getattr(config, "n_shared_experts", 0))
    return int(hidden * count_experts(config) + 3 * hidden * (config.num_experts_per_tok * width + shared) + gate)


def count_experts(config: Any) -> int:
    """Return the number of experts of a layer, of which a token is routed to some."""
    return int(next(getattr(config, name) for name in EXPERT_COUNTS if hasattr(config, name)))


def _has_experts(config: Any, layer: int) -> bool:
    if config.model_type in DENSE_MODEL_TYPES:
        return False
    if (chosen := getattr(config, "moe_layers", None)) is not None:
        return layer in chosen
    if layer < getattr(config, "first_k_dense_replace", 0) or layer in (getattr(config, "mlp_only_layers", None) or ()):
        return False
    return (layer + 1) % getattr(config, "decoder_sparse_step", 1) == 0


def _count_state(config: Any) -> int:
    """Count the elements of a linear attention layer's state: a matrix for each head of the values."""
    if not hasattr(config, "linear_num_value_heads"):
        return 0
    return int(config.linear_num_value_heads * config.linear_key_head_dim * config.linear_value_head_dim)


def count_forward_flops(shape: Shape, lengths: Sequence[int], *, logits: int | None = None) -> float:
    """Count the FLOPs of a forward pass over sequences of these lengths in tokens.

    logits: number of tokens whose logits are computed. Default: all.
    """
    return _count_linear(shape, lengths, logits) + _count_attention(shape, lengths)


def find_cost(shape: Shape | None) -> Callable[[int], float]:
    """Return the forward FLOPs of a sequence as a function of its tokens. Without a shape, the tokens."""
    return float if shape is None else cache(lambda length: count_forward_flops(shape, [length]))


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
    """Count 4 FLOPs for each dimension and each pair of a token and an earlier one, half for a token with itself, and 6
    for each element of a state and each token: the prediction from the key, the update, and the output."""
    layers = Counter(shape.attention).items()
    pairs = sum(4.0 * n * each.width * _count_pairs(length, each) for each, n in layers for length in lengths)
    return pairs + 6.0 * shape.state * sum(lengths)


def _count_pairs(length: int, attention: Attention) -> float:
    window = attention.window
    if window is None or length <= window:
        return length**2 / 2
    if attention.is_chunked:
        chunks, rest = divmod(length, window)
        return (chunks * window**2 + rest**2) / 2
    return window**2 / 2 + (length - window) * window
