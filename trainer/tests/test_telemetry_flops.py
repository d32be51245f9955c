"""The FLOP formula agrees with torch's counter, and only known devices have a peak."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from packaging.version import Version
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, __version__

from rlt_api.rules.model_families import NUMBER_OF_EXPERTS
from rlt_trainer.telemetry.flops import (
    DENSE_MODEL_TYPES,
    EXPERT_COUNTS,
    MOE_MODEL_TYPES,
    Attention,
    count_experts,
    count_forward_flops,
    count_training_flops,
    find_shape,
)
from rlt_trainer.telemetry.peak_flops import find_peak_flops

counted_exactly = pytest.mark.skipif(
    Version(__version__) < Version("5.19"),
    reason="transformers 5.17 computes rotary angles by a matrix product, whose few FLOPs torch counts",
)
SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 101,
}


EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
LATENT = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20, "kv_lora_rank": 32, "num_key_value_heads": 4}
ROUTED = {**EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}
GROUPS = {"n_group": 1, "topk_group": 1}
SHARED = {**EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 56}
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**SHARED, "decoder_sparse_step": 2},
    "qwen3_moe": {**EXPERTS, "num_experts": 8, "mlp_only_layers": [0]},
    "qwen3_next": {**SHARED, **LINEAR},
    "qwen3_5_moe_text": {**SHARED, **LINEAR},
    "gpt_oss": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 3},
    "llama4_text": {"num_local_experts": 8, "intermediate_size_mlp": 72, "interleave_moe_layer_step": 2},
    "deepseek_v3": {**ROUTED, **LATENT, **GROUPS, "q_lora_rank": 24, "head_dim": 8},
    "glm4_moe": {**ROUTED, **GROUPS},
}
"""model_type -> sizes with dense layers and shared experts, where the family has them."""


def small(model_type: str, **changes: Any) -> Any:
    return AutoConfig.for_model(model_type, **{**SMALL, **changes})


@counted_exactly
@pytest.mark.parametrize("model_type", sorted(DENSE_MODEL_TYPES))
def test_the_formula_agrees_with_torchs_counter(model_type: str) -> None:
    config = small(model_type, attn_implementation="sdpa")
    tokens = torch.zeros(2, 7, dtype=torch.long)
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        loss = model(tokens).logits.sum()
        forward = counter.get_total_flops()
        loss.backward()
    shape = find_shape(config)
    assert shape
    pairs = 4 * 3 * 4 * 16 * 2 * 7**2  # torch counts all pairs of tokens, not only the causal half
    assert forward == count_forward_flops(shape, [7, 7]) + pairs / 2
    assert counter.get_total_flops() == pytest.approx(count_training_flops(shape, [7, 7]) + 3 * pairs / 2, rel=0.01)


def test_every_mixture_is_tested() -> None:
    assert MIXTURES.keys() == MOE_MODEL_TYPES


@pytest.mark.parametrize("model_type", MIXTURES)
def test_the_weights_of_a_mixture_are_those_that_multiply_a_token(model_type: str) -> None:
    config = small(model_type, **MIXTURES[model_type])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    active = {".experts.": config.num_experts_per_tok / count_experts(config)}
    weights = {name: each.numel() for name, each in model.named_parameters() if each.ndim > 1 and ".layers." in name}
    matrices = {name: n for name, n in weights.items() if not name.endswith("_bias")}
    shape = find_shape(config)
    assert shape
    assert any(".experts." in name for name in matrices)
    assert shape.weights == sum(
        n * next((s for part, s in active.items() if part in name), 1) for name, n in matrices.items()
    )
    assert shape.head_weights == model.get_output_embeddings().weight.numel()


@counted_exactly
@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "glm4_moe"])
def test_the_formula_of_a_mixture_agrees_with_torchs_counter(model_type: str) -> None:
    """The attention of the others has another form: transformers computes linear attention in chunks, and all of Llama
    4's experts for each token."""
    config = small(model_type, **MIXTURES[model_type], attn_implementation="eager", experts_implementation="eager")
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 7, dtype=torch.long))
    shape = find_shape(config)
    assert shape
    masked = sum(4 * each.width * 2 * (7**2 - count_pairs(7, each)) for each in shape.attention)
    assert counter.get_total_flops() == count_forward_flops(shape, [7, 7]) + masked


def count_pairs(length: int, attention: Attention) -> float:
    """Count the pairs of a token and an earlier one in the window, half for a token with itself."""
    window = attention.window or length
    return sum(min(token, window) - 0.5 if token <= window else window for token in range(1, length + 1))


def test_linear_attention_costs_the_same_for_each_token() -> None:
    config = small("qwen3_next", **{**MIXTURES["qwen3_next"], "layer_types": ["linear_attention"] * 3})
    shape = find_shape(config)
    assert shape
    assert shape.attention == ()
    assert shape.state == 3 * 4 * 8 * 12
    one = 2 * (shape.weights + shape.head_weights) + 6 * shape.state
    assert count_forward_flops(shape, [10, 5]) == 15 * one


def test_a_chunk_limits_the_pairs() -> None:
    whole, chunked = (find_shape(small("llama4_text", attention_chunk_size=size)) for size in (100, 4))
    assert whole
    assert chunked
    assert {each.is_chunked for each in chunked.attention} == {True}
    assert count_forward_flops(whole, [4]) == count_forward_flops(chunked, [4])
    saved = 4 * 3 * 64 * (50 - 8 - 8 - 2)
    assert count_forward_flops(whole, [10]) - count_forward_flops(chunked, [10]) == saved


def test_the_text_decoder_of_a_config_counts() -> None:
    text = small("llama4_text")
    whole = AutoConfig.for_model("llama4", text_config=text.to_dict())
    assert find_shape(whole) == find_shape(text) is not None


def test_deepseek_v3_activates_37_billion_weights() -> None:
    shape = find_shape(AutoConfig.for_model("deepseek_v3"))
    assert shape
    assert shape.weights + 2 * shape.head_weights == pytest.approx(37e9, rel=0.02)  # its paper counts the embedding


def test_an_expert_counts_for_the_tokens_routed_to_it() -> None:
    dense = find_shape(small("qwen3"))
    mixture = find_shape(small("qwen3_moe", moe_intermediate_size=40, num_experts=8, num_experts_per_tok=2))
    assert dense
    assert mixture
    assert mixture.weights - dense.weights == 3 * 48 * 8  # two experts of half the width, and the router


def test_a_window_limits_the_pairs() -> None:
    whole = find_shape(small("mistral", sliding_window=None))
    windowed = find_shape(small("mistral", sliding_window=4))
    assert whole
    assert windowed
    assert count_forward_flops(whole, [4]) == count_forward_flops(windowed, [4])
    assert count_forward_flops(whole, [10]) - count_forward_flops(windowed, [10]) == 4 * 3 * 64 * (50 - 8 - 24)


def test_qwen3_0_6b_costs_six_flops_per_weight_and_token() -> None:
    config = AutoConfig.for_model(
        "qwen3", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151936,
    )  # fmt: skip
    shape = find_shape(config)
    assert shape
    assert shape.weights == 440_401_920  # "0.44B" without embeddings on its model card
    assert count_training_flops(shape, [1]) == pytest.approx(6 * (440_401_920 + 151936 * 1024), rel=1e-3)
    assert count_training_flops(shape, [1000], logits=0, lora=True) == pytest.approx(4000 * 440_401_920, rel=0.2)


def test_other_architectures_have_no_shape() -> None:
    assert find_shape(AutoConfig.for_model("gpt2")) is None
    assert find_shape(AutoConfig.for_model("qwen2_5_vl")) is None


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA L4", 121),
        ("NVIDIA L40", None),
        ("AMD Instinct MI300X", 1307),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("Tesla T4", None),
        ("cpu", None),
    ],
)
def test_only_known_devices_have_a_peak(name: str, tera: float | None) -> None:
    assert find_peak_flops(name) == (tera and tera * 1e12)


def test_the_api_has_the_same_names_for_the_number_of_experts() -> None:
    assert EXPERT_COUNTS == NUMBER_OF_EXPERTS
