"""Widths and depth of a model, for the memory of its activations, if they are known."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.blocks.model import Model
from rlt_api.rules.model_size import BYTE_TOKENS


@dataclass(frozen=True)
class Shape:
    """The dimensions of a decoder with gated feed-forward layers (Llama, Qwen2, Qwen3) or experts (Qwen3-MoE)."""

    hidden: int
    intermediate: int
    """Width of the feed-forward layer, or of one token's experts together."""
    layers: int
    queries: int
    """Query heads times their width."""
    keys: int
    """Key heads times their width; values have the same."""
    vocabulary: int
    tied: bool = False
    """Whether the output layer is the embedding."""
    normed: bool = False
    """Whether queries and keys are normalized (Qwen3)."""
    experts: int = 1
    """Number of experts of a layer."""
    experts_per_token: int = 1

    @property
    def layer_parameters(self) -> int:
        """Parameters of a layer, without norms, biases and router."""
        return 2 * self.hidden * (self.queries + self.keys) + self.expert_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts in a layer, or of the feed-forward layer."""
        return 3 * self.hidden * self.intermediate // self.experts_per_token * self.experts


KNOWN = {
    "Qwen3-0.6B": Shape(1024, 3072, 28, 2048, 1024, 151_936, tied=True, normed=True),
    "Qwen3-1.7B": Shape(2048, 6144, 28, 2048, 1024, 151_936, tied=True, normed=True),
    "Qwen3-4B": Shape(2560, 9728, 36, 4096, 1024, 151_936, tied=True, normed=True),
    "Qwen3-8B": Shape(4096, 12_288, 36, 4096, 1024, 151_936, normed=True),
    "Qwen3-14B": Shape(5120, 17_408, 40, 5120, 1024, 151_936, normed=True),
    "Qwen3-32B": Shape(5120, 25_600, 64, 8192, 1024, 151_936, normed=True),
    **dict.fromkeys(
        ("Qwen3-30B-A3B", "Qwen3-Coder-30B-A3B"),
        Shape(2048, 8 * 768, 48, 4096, 512, 151_936, normed=True, experts=128, experts_per_token=8),
    ),
    "Qwen3-235B-A22B": Shape(4096, 8 * 1536, 94, 8192, 512, 151_936, normed=True, experts=128, experts_per_token=8),
    "Qwen2.5-0.5B": Shape(896, 4864, 24, 896, 128, 151_936, tied=True),
    "Qwen2.5-1.5B": Shape(1536, 8960, 28, 1536, 256, 151_936, tied=True),
    "Qwen2.5-3B": Shape(2048, 11_008, 36, 2048, 256, 151_936, tied=True),
    "Qwen2.5-7B": Shape(3584, 18_944, 28, 3584, 512, 152_064),
    "Qwen2.5-14B": Shape(5120, 13_824, 48, 5120, 1024, 152_064),
    "Qwen2.5-32B": Shape(5120, 27_648, 64, 5120, 1024, 152_064),
    "Qwen2.5-72B": Shape(8192, 29_568, 80, 8192, 1024, 152_064),
    "Llama-3.2-1B": Shape(2048, 8192, 16, 2048, 512, 128_256, tied=True),
    "Llama-3.2-3B": Shape(3072, 8192, 28, 3072, 1024, 128_256, tied=True),
    "Llama-3.1-8B": Shape(4096, 14_336, 32, 4096, 1024, 128_256),
    "Llama-3.1-70B": Shape(8192, 28_672, 80, 8192, 1024, 128_256),
    "Llama-3.3-70B": Shape(8192, 28_672, 80, 8192, 1024, 128_256),
}
"""Name on the hub, without variants such as -Instruct -> the dimensions in its config.json."""


def model_shape(model: Model) -> Shape | None:
    """Return the dimensions of fromSeed, or of the known model in the name; None if unknown."""
    seeded = model.from_seed
    if seeded is not None:
        keys = seeded.hidden_size // seeded.num_attention_heads * seeded.num_key_value_heads
        widths = (seeded.hidden_size, seeded.intermediate_size, seeded.num_hidden_layers, seeded.hidden_size, keys)
        return Shape(*widths, BYTE_TOKENS, normed=True)
    name = (model.path or "").rstrip("/").rsplit("/", 1)[-1]
    matching = [known for known in KNOWN if name == known or name.startswith(f"{known}-")]
    return KNOWN[max(matching, key=len)] if matching else None
