"""The FLOP formula agrees with torch's counter, and only known devices have a peak."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from rlt_trainer.telemetry.flops import DENSE_MODEL_TYPES, count_forward_flops, count_training_flops, find_shape
from rlt_trainer.telemetry.peak_flops import find_peak_flops

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 101,
}


def small(model_type: str, **changes: Any) -> Any:
    return AutoConfig.for_model(model_type, **{**SMALL, **changes})


@pytest.mark.parametrize("model_type", sorted(DENSE_MODEL_TYPES))
def test_the_formula_agrees_with_torchs_counter(model_type: str) -> None:
    config = small(model_type, attn_implementation="sdpa")
    tokens = torch.zeros(2, 7, dtype=torch.long)
    model = AutoModelForCausalLM.from_config(config)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        loss = model(tokens).logits.sum()
        forward = counter.get_total_flops()
        loss.backward()
    shape = find_shape(config)
    assert shape
    pairs = 4 * 3 * 4 * 16 * 2 * 7**2  # torch counts all pairs of tokens, not only the causal half
    assert forward == count_forward_flops(shape, [7, 7]) + pairs / 2
    assert counter.get_total_flops() == pytest.approx(count_training_flops(shape, [7, 7]) + 3 * pairs / 2, rel=0.01)


def test_an_expert_counts_for_the_tokens_routed_to_it() -> None:
    dense, mixture = (
        find_shape(small("qwen3")),
        find_shape(small("qwen3_moe", moe_intermediate_size=40, num_experts=8, num_experts_per_tok=2)),
    )
    assert dense
    assert mixture
    assert mixture.weights - dense.weights == 3 * 48 * 8  # two experts of half the width, and the router


def test_a_window_limits_the_pairs() -> None:
    whole, windowed = find_shape(small("mistral", sliding_window=None)), find_shape(small("mistral", sliding_window=4))
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
    assert find_shape(small("qwen3_moe", mlp_only_layers=[0])) is None


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
