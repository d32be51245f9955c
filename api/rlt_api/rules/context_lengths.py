"""The contexts of known models: max_position_embeddings of their config.json on the hub, in tokens."""

from __future__ import annotations

import re

CONTEXTS: tuple[tuple[str, int], ...] = (
    (r"Qwen2\.5-Math-(1\.5|7|72)B.*", 4_096),
    (r"Qwen2\.5-(0\.5|3)B(-Instruct)?", 32_768),
    (r"Qwen2\.5-(1\.5|7|14|32|72)B-Instruct", 32_768),
    (r"Qwen2\.5-(1\.5|7|14|32|72)B", 131_072),
    (r"Qwen2\.5-Coder-(0\.5|1\.5|3|7|14|32)B.*", 32_768),
    (r"Qwen3-(0\.6|1\.7|4|8|14|32)B", 40_960),
    (r"Qwen3-(0\.6|1\.7|4|8|14)B-Base", 32_768),
    (r"Qwen3-(30B-A3B|235B-A22B)", 40_960),
    (r"Qwen3-30B-A3B-Base", 32_768),
    (r"Qwen3-(4B|30B-A3B|235B-A22B)-(Instruct|Thinking)-2507", 262_144),
    (r"Llama-2-(7|13|70)b.*", 4_096),
    (r"Meta-Llama-3-(8|70)B.*", 8_192),
    (r"(Meta-)?Llama-3\.[123]-.*", 131_072),
    (r"deepseek-llm-(7|67)b-.*", 4_096),
    (r"deepseek-math-7b-.*", 4_096),
    (r"DeepSeek-R1-Distill-(Qwen|Llama)-.*", 131_072),
    (r"Mistral-7B-(Instruct-)?v0\.[123]", 32_768),
    (r"Mixtral-8x7B-.*v0\.1", 32_768),
    (r"gemma-2-(2|9|27)b(-it)?", 8_192),
    (r"Phi-3-mini-4k-instruct", 4_096),
    (r"phi-4", 16_384),
)
"""Name without its owner -> tokens. The first pattern that matches the whole name applies."""


def find_context_length(model: str) -> int | None:
    """Return the context of a model by the last part of its name or folder; None if it is unknown."""
    name = model.rstrip("/").rpartition("/")[2]
    return next((tokens for pattern, tokens in CONTEXTS if re.fullmatch(pattern, name)), None)
