"""Sizes of models, compared with transformers."""

from __future__ import annotations

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.rules.model_size import kv_bytes_per_token, model_size, parameters_in_name, seeded_parameters


@pytest.mark.parametrize("changes", [{}, {"numHiddenLayers": 1, "hiddenSize": 64}, {"numKeyValueHeads": 4}])
def test_parameters_of_a_seeded_model_match_transformers(changes: dict[str, int]) -> None:
    from transformers import Qwen3ForCausalLM

    from rlt_trainer.data.seeded_model import build_seeded_config

    seeded = SeededModel.model_validate(changes)
    made = Qwen3ForCausalLM(build_seeded_config(seeded))  # type: ignore[no-untyped-call]
    assert seeded_parameters(seeded) == sum(parameter.numel() for parameter in made.parameters())


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7e9),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("/mnt/models/Qwen2.5-0.5B/", 0.5e9),
        ("HuggingFaceTB/SmolLM2-135M", 135e6),
        ("meta-llama/Llama-2-7b-hf", 7e9),
        ("mistralai/Mixtral-8x7B-v0.1", None),
        ("/mnt/7B/mine", None),
        ("google/gemma-2b", 2e9),
        ("deepseek-ai/DeepSeek-V3", None),
        ("some-4bit-model", None),
    ],
)
def test_parameters_are_parsed_from_the_name(path: str, parameters: float | None) -> None:
    assert parameters_in_name(path) == parameters


def test_explicit_parameters_override_the_name() -> None:
    size = model_size(Model(path="a/b-7B", parameters="13.5B"))
    assert size
    assert size.parameters == 13.5e9
    assert model_size(Model(path="a/b")) is None


def test_kv_cache_bytes_per_token() -> None:
    """2 (key and value) x 4 layers x 2 heads x 32 dimensions x 4 bytes."""
    assert kv_bytes_per_token(Model(from_seed=SeededModel())) == 2 * 4 * 2 * 32 * 4
    assert kv_bytes_per_token(Model(path="a/b-7B")) is None
