"""A seed produces a model and a tokenizer that transformers can load."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlt_api.blocks.model import SeededModel
from rlt_trainer.data.byte_tokenizer import BOS, EOS, PAD, ROLE_MARKS, build_byte_tokenizer
from rlt_trainer.data.seeded_model import build_seeded_config, write_seeded_model

SMALL = SeededModel(seed=3, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
TOKENIZER = build_byte_tokenizer()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_round_trips_as_its_bytes(text: str) -> None:
    assume(not any(mark in text for mark in (BOS, EOS, PAD, *ROLE_MARKS)))
    token_ids = TOKENIZER(text)["input_ids"]
    assert token_ids == list(text.encode())
    assert TOKENIZER.decode(token_ids) == text


def test_special_tokens_are_single_tokens_after_the_bytes() -> None:
    assert TOKENIZER("<|bos|>a<|eos|><|pad|><|user|>")["input_ids"] == [256, 97, 257, 258, 260]
    assert TOKENIZER.decode([97, 257], skip_special_tokens=True) == "a"


def test_bytes_that_are_not_text_decode_without_error() -> None:
    assert TOKENIZER.decode([0xC3, 97, 0xFF]) == "\ufffda\ufffd"


def test_a_conversation_is_rendered_as_role_tokens_and_contents() -> None:
    conversation = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "v"},
    ]
    text = TOKENIZER.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    marked = "<|system|>s<|eos|><|user|>u<|eos|><|assistant|>a<|eos|><|user|>v<|eos|>"
    assert text == f"<|bos|>{marked}<|assistant|>"


def test_the_written_tokenizer_loads_identically(tmp_path: Path) -> None:
    write_seeded_model(SMALL, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "37+58= 095\n\t  é🎉\x00 ,a . <|user|>x<|eos|>"
    assert loaded(text)["input_ids"] == TOKENIZER(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.chat_template == TOKENIZER.chat_template
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (256, 257, 258)
    assert loaded.get_vocab() == TOKENIZER.get_vocab()


def test_the_written_model_loads_and_computes(tmp_path: Path) -> None:
    write_seeded_model(SMALL, tmp_path)
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    model, report = loaded
    assert not any(report.values())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    logits = model(torch.tensor([[1, 2, 3]])).logits
    assert logits.shape == (1, 3, len(TOKENIZER))
    assert torch.isfinite(logits).all()
    assert model.generation_config.eos_token_id == TOKENIZER.eos_token_id


def test_the_seed_determines_the_weights(tmp_path: Path) -> None:
    for name, model in {"a": SMALL, "b": SMALL, "c": SMALL.model_copy(update={"seed": 4})}.items():
        write_seeded_model(model, tmp_path / name)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_writing_does_not_change_global_random_state(tmp_path: Path) -> None:
    before = (torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate())  # type: ignore[index]
    write_seeded_model(SMALL, tmp_path)
    after = (torch.get_rng_state(), np.random.get_state()[1], random.getstate())  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]


def test_pods_with_other_users_can_read_the_weights(tmp_path: Path) -> None:
    write_seeded_model(SMALL, tmp_path)
    weights, config = (tmp_path / name for name in ("model.safetensors", "config.json"))
    assert weights.stat().st_mode == config.stat().st_mode


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden_size": 30}, "hiddenSize 30 .* numAttentionHeads 4"),
        ({"hidden_size": 12}, "hiddenSize 12 .* numAttentionHeads 4"),
        ({"num_key_value_heads": 3}, "numKeyValueHeads 3 .* numAttentionHeads 4"),
    ],
)
def test_sizes_that_are_not_divisible_are_rejected(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_seeded_config(SMALL.model_copy(update=sizes))
