"""Tiny models of the tested families: the shape of the published config, few layers, small widths.

The values that are not sizes, such as norms of queries, scales, patterns of layers and tied embeddings, are from
the config.json of the model that `published` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
HEAD = {"head_dim": 32}
"""The smallest head of vLLM's attention on CPUs. Families without the field have heads of this width, too."""


@dataclass(frozen=True)
class Family:
    """A row of the table."""

    model_type: str
    published: str
    """A model of the family on the Hugging Face hub."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values of its config besides SIZES."""
    lora_targets: tuple[str, ...] = ("all-linear",)
    """model.lora.targetModules that the trainer supports."""


ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LATENT_ATTENTION = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")

FAMILIES = {
    "Qwen2.5": Family("qwen2", "Qwen/Qwen2.5-1.5B", {"tie_word_embeddings": True}),
    "Qwen3": Family("qwen3", "Qwen/Qwen3-0.6B", {**HEAD, "tie_word_embeddings": True}),
    "Qwen3-MoE": Family(
        "qwen3_moe",
        "Qwen/Qwen3-30B-A3B",
        {
            **HEAD,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        ATTENTION,
    ),
    "Qwen3-Next": Family(
        "qwen3_next",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        {
            **HEAD,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
        ATTENTION,
    ),
    "Llama 3": Family(
        "llama",
        "meta-llama/Llama-3.2-1B",
        {
            **HEAD,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    "Llama 4": Family("llama4_text", "meta-llama/Llama-4-Scout-17B-16E", {**HEAD, "num_local_experts": 4}, ATTENTION),
    "Mistral": Family("mistral", "mistralai/Mistral-7B-v0.3", {**HEAD, "sliding_window": None}),
    "Ministral": Family("ministral3", "mistralai/Ministral-3-3B-Base-2512", {**HEAD, "tie_word_embeddings": True}),
    "Gemma 3": Family(
        "gemma3_text",
        "google/gemma-3-1b-pt",
        {
            **HEAD,
            "num_hidden_layers": 6,
            "num_key_value_heads": 1,
            "sliding_window": 8,
            "query_pre_attn_scalar": 32,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        },
    ),
    "Phi-4": Family("phi3", "microsoft/phi-4", {"sliding_window": None, "tie_word_embeddings": False}),
    "OLMo 2": Family("olmo2", "allenai/OLMo-2-1124-7B", {"num_key_value_heads": 4}),
    "gpt-oss": Family(
        "gpt_oss",
        "openai/gpt-oss-20b",
        {
            **HEAD,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 15e4,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 128,
            },
        },
    ),
    "DeepSeek-V3": Family(
        "deepseek_v3",
        "deepseek-ai/DeepSeek-V3",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "q_lora_rank": 64,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 64,
            "v_head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 64,
            "routed_scaling_factor": 2.5,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
        },
        LATENT_ATTENTION,
    ),
    "GLM-4": Family("glm4", "zai-org/GLM-4-9B-0414", HEAD),
    "GLM-4 MoE": Family(
        "glm4_moe",
        "zai-org/GLM-4.5-Air",
        {
            **HEAD,
            "num_hidden_layers": 3,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 64,
        },
        ATTENTION,
    ),
    "SmolLM3": Family(
        "smollm3",
        "HuggingFaceTB/SmolLM3-3B",
        {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "tie_word_embeddings": True},
    ),
    "Granite": Family(
        "granite",
        "ibm-granite/granite-3.3-2b-base",
        {
            "attention_multiplier": 0.03125,
            "embedding_multiplier": 12.0,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "tie_word_embeddings": True,
        },
    ),
}


def build_config(family: Family) -> PreTrainedConfig:
    """Build the config of the tiny model, for the byte tokenizer."""
    tokenizer = build_byte_tokenizer()
    tokens = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    values = {**SIZES, **tokens, "pad_token_id": tokenizer.pad_token_id, **family.values}
    return CONFIG_MAPPING[family.model_type](vocab_size=len(tokenizer), dtype="float32", **values)


def write_model(family: Family, folder: Path) -> None:
    """Save the tiny model with random weights, none of which is 0 or 1, and the byte tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(build_config(family), dtype=torch.float32)
    with torch.no_grad():
        for weight in model.state_dict().values():  # also buffers, such as the correction bias of DeepSeek's router
            weight.add_(torch.randn_like(weight), alpha=0.02)
    model.save_pretrained(folder)
    build_byte_tokenizer().save_pretrained(folder)
