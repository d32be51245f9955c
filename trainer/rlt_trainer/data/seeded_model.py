"""Models without a download: a small Qwen3 with random weights from a seed."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save
from transformers import GenerationConfig, Qwen3Config

from rlt_api.blocks.model import SeededModel
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer


def build_seeded_config(model: SeededModel) -> Qwen3Config:
    """Build the architecture: float32, the byte tokenizer's 262 tokens, head dimension hiddenSize / numAttentionHeads.

    Embedding and output layer are not tied. FSDP2 shards a tensor with two names once, safetensors saves it once, and
    vLLM splits it. Without tying, the model has only 262 x hiddenSize more weights.

    Raises ValueError if the sizes are not divisible.
    """
    head_dim, rest = divmod(model.hidden_size, model.num_attention_heads)
    if rest or head_dim % 2:
        raise ValueError(
            f"model.fromSeed.hiddenSize {model.hidden_size} must be an even multiple of "
            f"numAttentionHeads {model.num_attention_heads} (rotary embeddings rotate pairs of dimensions)."
        )
    if model.num_attention_heads % model.num_key_value_heads:
        raise ValueError(
            f"model.fromSeed.numKeyValueHeads {model.num_key_value_heads} must divide "
            f"numAttentionHeads {model.num_attention_heads}."
        )
    tokenizer = build_byte_tokenizer()
    return Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        vocab_size=len(tokenizer),
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads,
        head_dim=head_dim,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


def write_seeded_model(model: SeededModel, directory: Path) -> None:
    """Write config, weights (safetensors), tokenizer and generation config in the format of AutoModel and vLLM.

    The weights depend only on the seed and the sizes. They are drawn in the order of their names from a separate
    generator, normal with Qwen3's initializer_range; norms are 1. The global random state does not change.
    """
    from transformers import Qwen3ForCausalLM  # slow import that the driver does not need

    directory.mkdir(parents=True, exist_ok=True)
    config = build_seeded_config(model)
    with torch.device("meta"):
        policy = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
        shapes = {name: tensor.shape for name, tensor in policy.state_dict().items()}
    generator = torch.Generator().manual_seed(model.seed)
    weights = {
        name: torch.ones(shape)
        if name.endswith("norm.weight")
        else torch.randn(shape, generator=generator) * config.initializer_range
        for name, shape in sorted(shapes.items())
    }
    # save_file makes the file readable only by its owner, and pods may run as other users.
    (directory / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    config.save_pretrained(directory)
    build_byte_tokenizer().save_pretrained(directory)
    generation = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        do_sample=True,
    )
    generation.save_pretrained(directory)
