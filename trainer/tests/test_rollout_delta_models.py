"""Changes of the weights from a train worker to an engine of another pod: dense, tied and MoE models, and adapters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import Pair, build_pair_config
from trained_families import FAMILIES, write_model

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.delta_channel import DeltaChannel
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.weight_delta import Bytes, Decoder, Message
from rlt_trainer.rollout.weight_sync import StaleWeightsError

PROBES = [Prompt(i, tuple(range(50 + i, 60 + i)), "", "", "", "") for i in range(8)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
SYNCS = 200
MODELS = {
    "dense": ("Mistral", {}),
    "tied": ("Qwen3", {}),
    "MoE": ("GLM-4 MoE", {}),
    "LoRA": ("Qwen3", {"lora": {"rank": 4}}),
}
"""Name -> family, and more of model."""

Open = Callable[..., Pair]


@pytest.fixture
def open_pair(tmp_path: Path) -> Iterator[Open]:
    """Return the function that opens a policy and an engine in another pod, after the first weight sync."""
    pairs: list[Pair] = []

    def build(family: str, **model: Any) -> Pair:
        write_model(FAMILIES[family], tmp_path / "model")
        config = build_pair_config(
            tmp_path / "run",
            model={"path": str(tmp_path / "model"), **model},
            data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
            training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-4},
            rollout={"engine": "transformers", "mode": "separate", "workerGroup": "rollout", "verifyWeightsFreq": 50},
            rolloutWorkers=1,
        )
        pairs.append(Pair(config, PROBES))
        sync(pairs[-1])
        return pairs[-1]

    yield build
    for pair in pairs:
        pair.close()


def sync(pair: Pair) -> None:
    pair.version += 1
    pair.engines.sync_weights(pair.version)


def train(pair: Pair) -> None:
    pair.rank.supervised_step(EXAMPLES, 12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_the_bytes_of_an_engine_are_the_policys_after_200_syncs(open_pair: Open, model: str, dtype: str) -> None:
    family, options = MODELS[model]
    pair = open_pair(family, dtype=dtype, **options)
    assert isinstance(pair.rank._channel, DeltaChannel)
    for _ in range(SYNCS):
        train(pair)
        sync(pair)
    assert_equal_bytes(pair)


def assert_equal_bytes(pair: Pair) -> None:
    """The engine has the policy's weights."""
    assert isinstance(pair.engine, TransformersEngine)
    held = pair.engine._weights
    sent = {name: tensor.clone() for name, tensor in pair.rank._actor.gather_weights()}
    assert sent
    for name, tensor in sent.items():
        assert torch.equal(tensor.view(-1).view(torch.uint8), held[name].contiguous().view(-1).view(torch.uint8)), name


def damage(monkeypatch: pytest.MonkeyPatch, is_damaged: Callable[[Message], bool]) -> None:
    """Flip a byte of each message that `is_damaged`, before the receiver decodes it."""
    decode = Decoder.decode

    def flip(decoder: Decoder, message: Message, data: Bytes) -> Any:
        if is_damaged(message):
            data[0] ^= 1
        return decode(decoder, message, data)

    monkeypatch.setattr(Decoder, "decode", flip)


@pytest.mark.slow
def test_damaged_changes_are_followed_by_whole_weights(
    open_pair: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = open_pair("Qwen3")
    train(pair)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        damage(patch, lambda message: message.base is not None)
        sync(pair)
    assert_equal_bytes(pair)
    assert "sending all weights again: Stale weights in the rollout engine" in caplog.text
    assert "message 2: its bytes have changed" in caplog.text
    train(pair)
    sync(pair)
    assert_equal_bytes(pair)


@pytest.mark.slow
def test_weights_that_are_damaged_twice_are_an_error(open_pair: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = open_pair("Qwen3")
    damage(monkeypatch, lambda message: True)
    with pytest.raises(StaleWeightsError, match=r"they did not arrive as they were sent \(message 0: its bytes"):
        sync(pair)


@pytest.mark.slow
def test_a_response_has_the_version_of_the_weights_at_its_request(open_pair: Open) -> None:
    pair = open_pair("Qwen3")
    (before,) = pair.generate([[50, 51]], [1])
    train(pair)
    sync(pair)
    (after,) = pair.generate([[50, 51]], [1])
    assert (before.version, after.version) == (pair.version - 1, pair.version)
