"""Number of parameters of a model, and bytes per token of its KV cache, if they are known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlt_api.blocks.model import Model, SeededModel

BYTE_TOKENS = 262
"""Vocabulary size of the seeded model: bytes and special tokens."""
MIN_SHARE_OF_NAMED_SIZE = 0.95
"""Lower bound of the number of parameters as a share of the number in a name: Llama-2-7b has 6.74e9."""
UNITS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes per number for each model.dtype."""


@dataclass(frozen=True)
class Size:
    """A lower bound of the number of parameters."""

    parameters: float
    source: str
    """The number with its source, for messages."""
    field: str
    """The field that it comes from."""


def model_size(model: Model) -> Size | None:
    """Return the size of a model from model.parameters, the dimensions of fromSeed, or the name; None if unknown."""
    if model.parameters is not None:
        number = parse_parameters(model.parameters)
        return Size(number, f"model.parameters {model.parameters}", "spec.model.parameters")
    if model.from_seed is not None:
        number = seeded_parameters(model.from_seed)
        return Size(number, f"{number:,} parameters of model.fromSeed", "spec.model.fromSeed")
    named = parameters_in_name(model.path or "")
    if named is None:
        return None
    source = f"at least {named * MIN_SHARE_OF_NAMED_SIZE / 1e9:.3g}B parameters by the name {model.path}"
    return Size(named * MIN_SHARE_OF_NAMED_SIZE, source, "spec.model.path")


def parse_parameters(text: str) -> float:
    """Parse a number of parameters: "7B" -> 7e9."""
    unit = text[-1] if text[-1] in "MBT" else ""
    return float(text.removesuffix(unit)) * UNITS[unit]


def parameters_in_name(path: str) -> float | None:
    """Parse the size in a name: Qwen/Qwen2.5-7B-Instruct -> 7e9. None for mixtures of unknown total such as 8x7B."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    found = re.findall(r"(?<![0-9A-Za-z.])([0-9]+(?:\.[0-9]+)?)([bBmM])(?![0-9A-Za-z])", name)
    if not found or re.search(r"[0-9][xX][0-9]", name):
        return None
    number, unit = found[0]
    return float(number) * UNITS[unit.upper()]


def seeded_parameters(model: SeededModel) -> int:
    """Count the parameters of the seeded Qwen3: untied embeddings, norms of queries and keys, no biases."""
    hidden = model.hidden_size
    head = model.hidden_size // model.num_attention_heads
    queries = model.num_attention_heads * head
    keys = model.num_key_value_heads * head
    attention = 2 * hidden * queries + 2 * hidden * keys + 2 * head
    layer = attention + 3 * hidden * model.intermediate_size + 2 * hidden
    return 2 * BYTE_TOKENS * hidden + model.num_hidden_layers * layer + hidden


def kv_bytes_per_token(model: Model) -> int | None:
    """Return the bytes of keys and values per token in all layers; None if the dimensions are unknown."""
    seeded = model.from_seed
    if seeded is None:
        return None
    head = seeded.hidden_size // seeded.num_attention_heads
    return 2 * seeded.num_hidden_layers * seeded.num_key_value_heads * head * BYTES[model.dtype]
