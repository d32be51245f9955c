"""vLLM with weights in FP8 (rollout.quantization): a weight sync quantizes them, and its verification compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from in_process import Pair
from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.vllm_worker import WorkerExtension
from rlt_trainer.rollout.weight_channel import WeightSender, send_weights
from rlt_trainer.rollout.weight_sums import Sums, sum_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE, StaleWeightsError
from rlt_trainer.workers import train_worker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}

Weights = Iterable[tuple[str, Tensor]]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy in bfloat16 and a vLLM engine in FP8 after the first weight sync."""
    on_gpu = request.param == "cuda"
    if on_gpu:
        from vllm.platforms import current_platform

        if not (current_platform.is_cuda() and current_platform.supports_fp8()):
            pytest.skip("needs vLLM built for CUDA, and a GPU that computes in FP8")
    config = TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path_factory.mktemp("run")),
            "workers": 1,
            "devicesPerWorker": int(on_gpu),
            "cpusPerWorker": 1,
            "model": {"fromSeed": TINY, "dtype": "bfloat16"},
            "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
            "rewards": [{"name": "exact"}],
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-6},
            "rollout": {"quantization": "fp8", "maxNumSeqs": 8, "freeCacheEngine": on_gpu, "gpuMemoryUtilization": 0.3},
            "checkpoint": {},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # to call change_value in vLLM's process
        pair = Pair(config, PROBES)
        pair.sync()
        yield pair
        pair.close()


def read_sums(pair: Pair) -> Sums:
    sums: Sums = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    return sums


@pytest.mark.slow
@pytest.mark.long
def test_syncs_of_small_steps_are_not_stale(pair: Pair) -> None:
    """A step at this learning rate changes the sums of the weights sent, and few or no values in FP8."""
    for _ in range(3):
        pair.rank.supervised_step(EXAMPLES, 12)
        assert pair.sync() < MAX_DIFFERENCE["fp8"]
        assert pair.sync() < MAX_DIFFERENCE["fp8"]  # the same weights again


@pytest.mark.slow
@pytest.mark.long
def test_the_engine_was_loaded_with_the_exact_weights_that_were_sent(pair: Pair) -> None:
    pair.rank.supervised_step(EXAMPLES, 12)
    pair.sync()
    assert read_sums(pair) == sum_weights(pair.rank._actor.gather_weights())


@pytest.mark.slow
@pytest.mark.long
def test_responses_have_about_the_log_probs_of_the_policy(pair: Pair) -> None:
    pair.sync()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = pair.generate(prompts, [1, 2, 3, 4])
    sequences = Sequences.pad(prompts, [each.token_ids for each in responses], pad_token_id=0)
    expected = pair.rank.log_probs(sequences)[0]
    actual = torch.tensor([value for each in responses for value in each.log_probs])
    difference = (actual - torch.tensor(expected.tolist())).abs()
    assert 0 < difference.mean() < MAX_DIFFERENCE["fp8"]


@pytest.mark.slow
@pytest.mark.long
def test_other_weights_are_detected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit that FP8 does not have."""

    def send(weights: Weights, channel: WeightSender) -> None:
        held = {name: tensor.clone() for name, tensor in weights}
        held["model.layers.1.mlp.up_proj.weight"].view(torch.int16).view(-1)[0] ^= 1
        send_weights(held.items(), channel)

    with monkeypatch.context() as patch:
        patch.setattr(train_worker, "send_weights", send)
        with pytest.raises(StaleWeightsError, match=r"weights differ from .* \(model\.layers\.1\.mlp\.up_proj"):
            pair.sync()
    pair.sync()


def change_value(worker: Any) -> None:
    layer = worker.get_model().get_submodule("model.layers.1.mlp.down_proj")
    layer.weight.data.view(torch.int8)[0, 0] ^= 1


def change_scale(worker: Any) -> None:
    layer = worker.get_model().get_submodule("model.layers.1.mlp.down_proj")
    layer.weight_scale.data[0] *= 1.01


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("change", [change_value, change_scale])
def test_a_changed_layer_is_detected(pair: Pair, change: Any) -> None:
    """The layer is not what the sync has quantized: as after a copy that failed."""
    pair.sync()
    name = "model.layers.1.mlp.down_proj: it has other values than those computed in the sync"
    pair.engines.loop.submit(pair.engine._llm.collective_rpc(change)).result(60)  # type: ignore[attr-defined]
    with pytest.raises(StaleWeightsError, match=name):
        read_sums(pair)
    pair.sync()


@pytest.mark.slow
@pytest.mark.long
def test_every_linear_layer_is_compared(pair: Pair) -> None:
    pair.sync()
    call = pair.engine._call  # type: ignore[attr-defined]
    assert pair.engines.loop.submit(call(WorkerExtension.list_wrong_layers)).result(60) == [[]]
