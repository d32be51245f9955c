"""A tokenizer is loaded, or the error states what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_api.blocks.model import Model, SeededModel
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.tokenizer import load_tokenizer, validate_tokenizer


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"model.path {tmp_path}/none: no such folder.*Put a Hugging Face model there"
    ):
        load_tokenizer(Model(path=f"{tmp_path}/none"))


def test_a_folder_without_tokenizer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"model.path {tmp_path}: no tokenizer can be loaded.*tokenizer.json"):
        load_tokenizer(Model(path=str(tmp_path)))


def test_a_tokenizer_without_padding_token_pads_with_its_end_of_text_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = build_byte_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(Model(path=str(tmp_path))).pad_token == "<|eos|>"
    assert "no padding token" in caplog.text


def test_a_tokenizer_without_end_of_text_token_is_rejected(tmp_path: Path) -> None:
    tokenizer = build_byte_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"no end-of-text token.*Set eos_token"):
        load_tokenizer(Model(path=str(tmp_path)))


def test_a_seeded_model_has_the_byte_tokenizer() -> None:
    assert load_tokenizer(Model(from_seed=SeededModel())).get_vocab() == build_byte_tokenizer().get_vocab()


def test_a_tokenizer_with_a_smaller_vocabulary_is_valid() -> None:
    validate_tokenizer(build_byte_tokenizer(), 262, path="/models/a")
    validate_tokenizer(build_byte_tokenizer(), 512, path="/models/a")


def test_a_tokenizer_of_another_model_is_rejected() -> None:
    tokenizer = build_byte_tokenizer()
    tokenizer.add_tokens(["<|image|>"])
    message = r"model.path /models/a: its tokenizer has 263 tokens, the last being '<|image|>' with number 262"
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        validate_tokenizer(tokenizer, 262, path="/models/a")
