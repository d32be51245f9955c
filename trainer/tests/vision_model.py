"""Small vision-language models with random weights: images of 8 x 8 pixels are one token."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer

MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
PATCH = 4
"""Pixels of a patch in each direction. Four patches are one token."""


ROPE = {"rope_type": "default", "rope_theta": 10000.0}
TEXT: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"rope_parameters": {**ROPE, "mrope_section": [4, 6, 6]}},
    "qwen3_vl": {
        "head_dim": 32,
        "rope_parameters": {**ROPE, "mrope_section": [6, 5, 5], "mrope_interleaved": True},
    },
}
"""model_type -> what its text config has besides the common fields."""
VISION: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {"window_size": 16, "fullatt_block_indexes": [1]},
    "qwen3_vl": {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
}
"""model_type -> what its vision config has besides the common fields."""


def write_vision_model(folder: Path, model_type: str = "qwen2_5_vl") -> Path:
    """Write config, weights, tokenizer and image processor in the format of the hub. Return `folder`."""
    tokenizer = build_byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)}, replace_extra_special_tokens=False)
    tokenizer.chat_template = CHAT_TEMPLATE
    start, end, image, video = (tokenizer.convert_tokens_to_ids(mark) for mark in MARKS)
    config = AutoConfig.for_model(
        model_type,
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 4096,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": False,
            **TEXT[model_type],
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 64,
            **VISION[model_type],
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
        dtype="float32",
    )
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=2, temporal_patch_size=2, min_pixels=(2 * PATCH) ** 2, max_pixels=64**2
    ).save_pretrained(folder)
    generation = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    generation.save_pretrained(folder)
    return folder


def draw_square(color: str, *, size: int = 16) -> bytes:
    """Return a PNG of one color."""
    buffer = BytesIO()
    Image.new("RGB", (size, size), color).save(buffer, "PNG")
    return buffer.getvalue()
