"""What the driver finds out before anything is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config

from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.byte_tokenizer import byte_tokenizer
from rlt_trainer.driver.run import check_batches, load_critic_config, run
from rlt_trainer.policy.config import critic_model

MakeConfig = Callable[..., TrainingConfig]


def with_critic(make_config: MakeConfig, **critic: str) -> TrainingConfig:
    return make_config(algorithm={"advEstimator": "gae", "critic": critic})


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"contextParallelSize": 4}, "contextParallelSize 4 must divide the number of ranks, 2"),
        ({"trainBatchSize": 6}, "ppoMiniBatchSize 4 must divide trainBatchSize 6"),
        ({"trainBatchSize": 9, "ppoMiniBatchSize": 3}, "ppoMiniBatchSize 3 cannot be shared equally by 2 ranks"),
        (
            {"warmup": {"steps": 1, "batchSize": 5}},
            "warmup.batchSize 5 cannot be shared equally by 2 ranks: use a mult",
        ),
    ],
)
def test_batches_that_the_ranks_cannot_share_are_told(
    make_config: MakeConfig, training: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_batches(make_config(training=training))


def test_ranks_that_share_sequences_count_as_one(make_config: MakeConfig) -> None:
    check_batches(make_config(training={"contextParallelSize": 2, "trainBatchSize": 9, "ppoMiniBatchSize": 3}))


def test_without_a_critic_there_is_nothing_to_load(make_config: MakeConfig) -> None:
    assert load_critic_config(make_config(), byte_tokenizer()) is None


def test_a_critic_starts_from_the_policy_s_model_or_its_own(make_config: MakeConfig) -> None:
    shared, own = with_critic(make_config), with_critic(make_config, modelPath="a/b", modelRevision="c0ffee")
    assert critic_model(shared) == shared.model
    assert (critic_model(own).path, critic_model(own).revision) == ("a/b", "c0ffee")


@pytest.mark.parametrize("vocabulary_size", [261, 262])
def test_a_critic_has_to_know_all_tokens_of_the_policy(
    make_config: MakeConfig, tmp_path: Path, vocabulary_size: int
) -> None:
    Qwen3Config(vocab_size=vocabulary_size, num_hidden_layers=1).save_pretrained(tmp_path)
    config = with_critic(make_config, modelPath=str(tmp_path))
    if vocabulary_size > 261:
        loaded = load_critic_config(config, byte_tokenizer())
        assert loaded is not None
        assert loaded.num_hidden_layers == 1
    else:
        with pytest.raises(ValueError, match=rf"critic.modelPath {tmp_path}: it has embeddings for 261 tokens, and"):
            load_critic_config(config, byte_tokenizer())


def test_a_tokenizer_of_another_model_ends_the_run_before_anything_is_started(
    make_config: MakeConfig, tiny_model: str, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|image|>"])
    tokenizer.save_pretrained(model)
    with pytest.raises(ValueError, match=rf"model.path {model}: its tokenizer has 263 tokens.*is another model's"):
        run(make_config(model={"path": str(model), "fromSeed": None}), local=True)


@pytest.mark.parametrize(
    ("config", "generation", "told"),
    [(257, 257, False), (258, [258, 257], False), (258, None, True), (258, [259, 258], True), (None, None, False)],
)
def test_a_tokenizer_that_ends_texts_otherwise_than_the_model_is_told(
    make_config: MakeConfig,
    tiny_model: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: int | None,
    generation: int | list[int] | None,
    told: bool,
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    for name, end in (("config.json", config), ("generation_config.json", generation)):
        file = model / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": end}))
    with pytest.raises(ValueError, match="the model holds"):  # by the check that comes next
        run(make_config(model={"path": str(model), "fromSeed": None}, data={"maxPromptLength": 10**6}), local=True)
    assert ("its tokenizer ends a text with '<|eos|>', number 257" in caplog.text) == told
