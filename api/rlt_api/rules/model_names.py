"""The families of published models by their names: model_type of their config.json on the hub."""

from __future__ import annotations

import re

FAMILIES: tuple[tuple[str, str], ...] = (
    (r"Qwen2\.5-VL-\d+B.*", "qwen2_5_vl"),
    (r"Qwen2-VL-\d+B.*", "qwen2_vl"),
    (r"Qwen3-VL-\d+B-A\d+B.*", "qwen3_vl_moe"),
    (r"Qwen3-VL-\d+B.*", "qwen3_vl"),
    (r"Qwen3(-Coder)?-\d+B-A\d+B.*", "qwen3_moe"),
    (r"Qwen3-Next-.*", "qwen3_next"),
    (r"Qwen3-\d+(\.\d+)?B.*", "qwen3"),
    (r"(QwQ-32B|Qwen2(\.5)?(-Math|-Coder)?-\d+(\.\d+)?B.*|DeepSeek-R1-Distill-Qwen-.*|DeepScaleR-.*)", "qwen2"),
    (r"Qwen1\.5-MoE-.*", "qwen2_moe"),
    (r"(Meta-)?Llama-(2|3|3\.1|3\.3)-\d+[bB].*|Llama-3\.2-[13]B.*|DeepSeek-R1-Distill-Llama-.*|TinyLlama-.*", "llama"),
    (r"Mixtral-8x\d+B-.*", "mixtral"),
    (r"Mistral-7B-.*", "mistral"),
    (r"(DeepSeek-(V3|V3-0324|V3\.1|R1|R1-0528)(-Base)?)", "deepseek_v3"),
    (r"DeepSeek-V2.*", "deepseek_v2"),
    (r"GLM-4\.(5|6|7)(-Air)?(-Base)?", "glm4_moe"),
    (r"OLMoE-.*", "olmoe"),
    (r"gemma-2-\d+b.*", "gemma2"),
    (r"(Phi-3(\.5)?-(mini|medium)-.*|phi-4|Phi-4-mini-.*)", "phi3"),
    (r"gpt-oss-\d+b", "gpt_oss"),
    (r"SmolLM3-3B.*", "smollm3"),
    (r"SmolLM2?-\d+(\.\d+)?[MB].*", "llama"),
)
"""Pattern of the whole name without its owner -> model_type. The first one applies."""
SEPARATE = ("q_proj", "k_proj", "v_proj", "o_proj")
GATED = (*SEPARATE, "gate_proj", "up_proj", "down_proj")
LINEAR_LAYERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("qwen2", "qwen3", "llama", "mistral", "gemma2", "smollm3", "qwen3_moe"), GATED),
    "mixtral": SEPARATE,
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
}
"""model_type -> the linear layers in a layer of transformers' class, without the output layer."""


def find_model_type(path: str) -> str | None:
    """Return the model_type of a published model by the last part of its name or folder; None if it is unknown."""
    name = path.rstrip("/").rpartition("/")[2]
    return next((family for pattern, family in FAMILIES if re.fullmatch(pattern, name)), None)
