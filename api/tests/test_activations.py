"""Dimensions of models and the memory of their activations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.rules.activations import activation_bytes, layer_bytes
from rlt_api.rules.model_shape import KNOWN, model_shape
from rlt_api.rules.model_size import parameters_in_name, seeded_parameters

QWEN3 = KNOWN["Qwen3-0.6B"]


@pytest.mark.parametrize("name", KNOWN)
def test_known_dimensions_give_the_number_of_parameters_in_the_name(name: str) -> None:
    """The names round: Qwen2.5-7B has 7.6e9, Llama-3.2-1B 1.24e9 parameters."""
    shape = KNOWN[name]
    named = parameters_in_name(name)
    embeddings = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
    assert named is not None
    assert named * 0.95 <= shape.layers * shape.layer_parameters + embeddings <= named * 1.25


def test_a_seeded_model_has_its_own_dimensions() -> None:
    seeded = SeededModel(hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    shape = model_shape(Model(from_seed=seeded))
    assert shape is not None
    weights = shape.layers * shape.layer_parameters + 2 * shape.vocabulary * shape.hidden
    norms = shape.layers * (2 * 64 + 2 * 16) + 64
    assert weights + norms == seeded_parameters(seeded)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/mnt/models/Qwen3-0.6B/", "Qwen3-0.6B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("Qwen/Qwen3-30B-A3B-Base", "Qwen3-30B-A3B"),
        ("Qwen/Qwen3-Next-80B-A3B", None),
        ("Qwen/Qwen3-4B2", None),
        ("/mnt/models/mine", None),
    ],
)
def test_the_name_selects_the_known_model(path: str, known: str | None) -> None:
    assert model_shape(Model(path=path)) == (KNOWN[known] if known else None)


def test_bytes_of_a_token_in_a_qwen3_layer() -> None:
    """16 x 1024 (hidden) + 8 x 3072 (feed-forward) + 10 x 2048 (queries) + 10 x 1024 (keys and values), in bfloat16."""
    assert layer_bytes(QWEN3, 2, packed=False) == 16 * 1024 + 8 * 3072 + 10 * 2048 + 10 * 1024
    assert layer_bytes(QWEN3, 2, packed=True) - layer_bytes(QWEN3, 2, packed=False) == 2 * 2048


def test_checkpointing_keeps_the_input_of_each_layer_and_one_layer() -> None:
    kept = activation_bytes(QWEN3, 1000, 2, packed=False, checkpointing=True)
    assert kept == 1000 * (28 * 2 * 1024 + layer_bytes(QWEN3, 2, packed=False))


def test_a_token_has_the_activations_of_its_experts_and_memory_holds_all() -> None:
    """Qwen3-30B-A3B: 8 of 128 experts of width 768, 0.6e9 parameters of experts in each of 48 layers."""
    mixture = KNOWN["Qwen3-30B-A3B"]
    assert mixture.expert_parameters == 128 * 3 * 2048 * 768
    assert mixture.layers * mixture.expert_parameters == pytest.approx(29e9, rel=0.01)
    dense = replace(mixture, experts=1, experts_per_token=1)
    assert layer_bytes(mixture, 2, packed=True) == layer_bytes(dense, 2, packed=True)
