"""Models with random weights: the shapes that people train, on disk in the format of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from train_step import CONFIGS
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer


def build_shape(name: str, **changes: Any) -> Qwen3Config:
    """Build the architecture of Qwen3-`name`, or the tiny one, as in bench/train_step.py."""
    sizes, *_ = CONFIGS[name if name == "tiny" else f"qwen3-{name.lower()}"]
    return Qwen3Config(**(sizes | changes))


def build_mixture_config(*, experts: int, width: int, layers: int) -> Qwen3MoeConfig:
    """Build a mixture with the experts of Qwen3-30B-A3B (128, 8 of them for a token) and smaller layers."""
    return Qwen3MoeConfig(
        vocab_size=1024,
        hidden_size=width,
        intermediate_size=2 * width,
        moe_intermediate_size=width // 2,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=experts,
        num_experts_per_tok=min(8, experts // 2),
        norm_topk_prob=True,
        tie_word_embeddings=False,
    )


def write_model(config: Qwen3Config | Qwen3MoeConfig, folder: Path, device: str) -> str:
    """Write a model with random weights, the byte tokenizer and a generation config. Return the folder.

    It is built on `device`, where random numbers are faster. The file has bfloat16, as published models do.
    """
    tokenizer = build_byte_tokenizer()
    config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    kind = Qwen3MoeForCausalLM if isinstance(config, Qwen3MoeConfig) else Qwen3ForCausalLM
    torch.manual_seed(0)
    with torch.device(device):
        model: PreTrainedModel = kind(config)
    nn.Module.to(model, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    ).save_pretrained(folder)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()
    return str(folder)
