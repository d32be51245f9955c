"""A tiny config for each type of causal language model in transformers."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

VOCABULARY = 97
LAYERS = 2
SIZES: dict[str, int] = {
    **dict.fromkeys(("vocab_size", "n_tokens", "vocab_size_per_layer_input", "decoder_vocab_size"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "dim_model", "n_embed", "embedding_size"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "dim_ff", "n_inner"), 48),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", "num_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "attention_head_dim", "qk_nope_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "index_head_dim", "qk_rope_head_dim", "rotary_dim"), 16),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "moe_ffn_hidden_size"), 32),
    **dict.fromkeys(("intermediate_size_mlp", "expert_ffn_hidden_size", "ffn_hidden_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "top_k_experts"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 128),
    **dict.fromkeys(("sliding_window", "attention_window_size", "index_topk"), 4),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("hidden_size_per_layer_input", "linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("zero_expert_num", "num_kv_shared_layers"), 0),
    "index_n_heads": 32,  # few heads would give equal scores, and the order of equal scores depends on padding
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "image_size": 16,
    "patch_size": 8,
}
"""Integers that many configs have. Prompts and responses are longer than the sliding window."""
FACTORS = {
    "logit_scale": 0.5,
    "logits_scaling": 3.0,
    "lm_head_multiplier": 0.7,
    "logits_mup_width_multiplier": 2.0,
    "final_logit_softcapping": 5.0,
    "embedding_multiplier": 1.5,
    "residual_multiplier": 0.8,
}
"""Factors of embeddings, layers and logits, whose defaults often have no effect."""
LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"]}
CONV_AND_FULL = {"layer_types": ["conv", "full_attention"]}
FAMILIES: dict[str, dict[str, Any]] = {
    "codegen": {"rotary_dim": 8},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]}}
    },
    "dbrx": {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 32},
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "falcon_h1": {
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_chunk_size": 16,
    },
    "gemma3": {"text_config": {"final_logit_softcapping": None}},  # transformers ignores it, and no model has it
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "intermediate_size": [48, 48],
        "activation_sparsity_pattern": None,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gptj": {"rotary_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "kimi_linear": {
        "linear_head_dim": 16,
        "linear_num_heads": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "lfm2": CONV_AND_FULL,
    "lfm2_moe": CONV_AND_FULL,
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "ministral": {"head_dim": 16},
    "mpt": {"logit_scale": None},  # transformers ignores it, and no model has it
    "nemotron": {"num_key_value_heads": 2},
    "qwen3_5_moe_text": LINEAR_AND_FULL,
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_next": LINEAR_AND_FULL,
    "reformer": {"is_decoder": True, "axial_pos_shape": [8, 16], "axial_pos_embds_dim": [32, 32]},
    "zaya": {"num_experts_per_tok": 1},
}
"""model_type -> the values that this family needs besides these."""


def build_tiny_config(model_type: str) -> PreTrainedConfig:
    """Build the config of a model with well under a million weights."""
    return _build(CONFIG_MAPPING[model_type], FAMILIES.get(model_type, {}))


def _build(config_class: type[PreTrainedConfig], family: dict[str, Any]) -> PreTrainedConfig:
    known = vars(config_class())
    sizes: dict[str, Any] = {name: size for name, size in SIZES.items() if isinstance(known.get(name), int)}
    sizes |= {name: value for name, value in FACTORS.items() if name in known}
    if "kv_lora_rank" in known:  # multi-head latent attention has keys for all heads
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    parts = {
        name: _build(type(part), family.get(name, {}))
        for name in config_class.sub_configs
        if isinstance(part := known.get(name), PreTrainedConfig)
    }
    return config_class(**{**sizes, **family, **parts})
