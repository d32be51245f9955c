"""Adapters that vLLM applies itself: a weight sync sends them alone, and its verification includes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch
from in_process import Pair, build_pair_config
from torch import Tensor

from rlt_api.blocks.model import Lora
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.lora import is_adapter
from rlt_trainer.rollout.vllm_adapters import Adapters
from rlt_trainer.rollout.weight_channel import WeightSender, send_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE, StaleWeightsError, build_probe
from rlt_trainer.workers import train_worker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
PROBE = build_probe(PROBES, 20)
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
LORA = {"rank": 4, "alpha": 12, "useRslora": True, "syncAdapters": True}

Weights = Iterable[tuple[str, Tensor]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy in bfloat16 and a vLLM engine after the first weight sync."""
    config = build_pair_config(
        tmp_path_factory.mktemp("run"),
        model={"fromSeed": TINY, "dtype": "bfloat16", "castLmHeadToFp32": True, "lora": LORA},
        data={"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
        training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-2},
        rollout={"engine": "vllm", "maxNumSeqs": 8},
    )
    pair = Pair(config, PROBES)
    pair.sync()
    yield pair
    pair.close()


@pytest.mark.slow
@pytest.mark.long
def test_a_sync_sends_the_adapters_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def send(weights: Weights, channel: WeightSender) -> None:
        held = list(weights)
        sent.extend(name for name, _ in held)
        send_weights(held, channel)

    monkeypatch.setattr(train_worker, "send_weights", send)
    before = torch.tensor(pair.rank.probe_log_probs(PROBE))
    for _ in range(3):
        pair.rank.supervised_step(EXAMPLES, 12)
        assert pair.sync() < MAX_DIFFERENCE["bfloat16"]
    assert len(sent) == 3 * 2 * 7 * 2  # syncs, layers, linear layers, factors
    assert all(is_adapter(name) for name in sent)
    assert not torch.allclose(torch.tensor(pair.rank.probe_log_probs(PROBE)), before, atol=0.1)


@pytest.mark.slow
@pytest.mark.long
def test_the_engine_has_the_exact_weights_of_the_files_and_adapters_that_were_sent(pair: Pair) -> None:
    """Includes rsLoRA's scale, fused q, k and v, and ranks padded with zeros."""
    pair.rank.supervised_step(EXAMPLES, 12)
    pair.sync()
    held = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    assert pair.engines._engines[0].verification is not None
    sent, now = pair.engines._engines[0].verification._before
    assert sent.parts == now.parts == held.parts


@pytest.mark.slow
@pytest.mark.long
def test_responses_have_the_log_probs_of_the_adapted_policy(pair: Pair) -> None:
    pair.rank.supervised_step(EXAMPLES, 12)
    pair.sync()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = pair.generate(prompts, [1, 2, 3, 4])
    sequences = Sequences.pad(prompts, [each.token_ids for each in responses], pad_token_id=0)
    expected = pair.rank.log_probs(sequences)[0].tolist()
    assert [value for each in responses for value in each.log_probs] == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
@pytest.mark.long
def test_one_changed_bit_of_one_adapter_is_detected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(weights: Weights, channel: WeightSender) -> None:
        held = {name: tensor.clone() for name, tensor in weights}
        held["base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"].view(torch.int16).view(-1)[0] ^= 1
        send_weights(held.items(), channel)

    pair.rank.supervised_step(EXAMPLES, 12)
    with monkeypatch.context() as patch:
        patch.setattr(train_worker, "send_weights", send)
        with pytest.raises(StaleWeightsError, match=r"weights differ from those that were sent \(layer 1\)"):
            pair.sync()
    pair.sync()


@pytest.mark.parametrize(
    ("targets", "modules"),
    [
        (["all-linear"], ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")),
        (["self_attn.q_proj", "down_proj"], ("down_proj", "q_proj")),
    ],
)
def test_the_layers_with_an_adapter_are_found(tiny_model: str, targets: list[str], modules: tuple[str, ...]) -> None:
    lora = Lora.model_validate({"rank": 4, "targetModules": targets})
    assert Adapters.of(tiny_model, lora, trust_remote_code=False) == Adapters(4, modules)
