"""Validation in the driver before Ray starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.driver.input_validation import validate_batches
from rlt_trainer.driver.run import load_critic_config, run
from rlt_trainer.policy.config import resolve_critic_model

MakeConfig = Callable[..., TrainingConfig]


def with_critic(make_config: MakeConfig, **critic: str) -> TrainingConfig:
    return make_config(algorithm={"advEstimator": "gae", "critic": critic})


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"contextParallelSize": 4}, "contextParallelSize: 4 does not divide the number of ranks, 2"),
        ({"trainBatchSize": 6}, "training.trainBatchSize: 6 is not divisible by ppoMiniBatchSize 4"),
        ({"trainBatchSize": 9, "ppoMiniBatchSize": 3}, "ppoMiniBatchSize: 3 is not divisible by 2 ranks"),
        (
            {"warmup": {"steps": 1, "batchSize": 5}},
            "warmup.batchSize: 5 is not divisible by 2 ranks: use a multiple of 2",
        ),
    ],
)
def test_batches_that_are_not_divisible_by_the_ranks_are_rejected(
    make_config: MakeConfig, training: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate_batches(make_config(training=training))


def test_ranks_that_share_sequences_count_as_one_group(make_config: MakeConfig) -> None:
    validate_batches(make_config(training={"contextParallelSize": 2, "trainBatchSize": 9, "ppoMiniBatchSize": 3}))


def test_no_critic_config_is_loaded_without_a_critic(make_config: MakeConfig) -> None:
    assert load_critic_config(make_config(), build_byte_tokenizer()) is None


def test_a_critic_starts_from_the_policys_model_or_its_own(make_config: MakeConfig) -> None:
    shared = with_critic(make_config)
    own = with_critic(make_config, modelPath="a/b", modelRevision="c0ffee")
    assert resolve_critic_model(shared) == shared.model
    assert (resolve_critic_model(own).path, resolve_critic_model(own).revision) == ("a/b", "c0ffee")


@pytest.mark.parametrize("vocabulary_size", [261, 262])
def test_a_critic_must_support_all_tokens_of_the_policy(
    make_config: MakeConfig, tmp_path: Path, vocabulary_size: int
) -> None:
    Qwen3Config(vocab_size=vocabulary_size, num_hidden_layers=1).save_pretrained(tmp_path)
    config = with_critic(make_config, modelPath=str(tmp_path))
    if vocabulary_size > 261:
        loaded = load_critic_config(config, build_byte_tokenizer())
        assert loaded is not None
        assert loaded.num_hidden_layers == 1
    else:
        with pytest.raises(ValueError, match=rf"critic.modelPath {tmp_path}: it has embeddings for 261 tokens, and"):
            load_critic_config(config, build_byte_tokenizer())


def test_a_tokenizer_of_another_model_is_rejected(make_config: MakeConfig, tiny_model: str, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = build_byte_tokenizer()
    tokenizer.add_tokens(["<|image|>"])
    tokenizer.save_pretrained(model)
    message = rf"model.path {model}: its tokenizer has 263 tokens.*belongs to another model"
    with pytest.raises(ValueError, match=message):
        run(make_config(model={"path": str(model), "fromSeed": None}), local=True)


@pytest.mark.parametrize(
    ("config", "generation", "logged"),
    [(257, 257, False), (258, [258, 257], False), (258, None, True), (258, [259, 258], True), (None, None, False)],
)
def test_another_end_of_text_token_than_the_models_is_logged(
    make_config: MakeConfig,
    tiny_model: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: int | None,
    generation: int | list[int] | None,
    logged: bool,
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    for name, end in (("config.json", config), ("generation_config.json", generation)):
        file = model / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": end}))
    with pytest.raises(ValueError, match="the model supports"):  # from the next validation
        run(make_config(model={"path": str(model), "fromSeed": None}, data={"maxPromptLength": 10**6}), local=True)
    assert ("end-of-text token of the tokenizer is '<|eos|>' (number 257)" in caplog.text) == logged
