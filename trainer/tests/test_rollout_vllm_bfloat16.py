"""Weight sync to vLLM in bfloat16, in which rounding hides an optimizer step from log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from in_process import Pair
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.rollout.weight_channel import WeightSender, send_weights
from rlt_trainer.rollout.weight_sums import sum_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE, StaleWeightsError, build_probe, compare_log_probs
from rlt_trainer.workers import train_worker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
EMBEDDING = "model.embed_tokens.weight"
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}


def write_tied_model(folder: Path) -> str:
    """Write a model with tied embeddings, as Qwen3-0.6B has."""
    files = prepare_model_files(Model(from_seed=SeededModel.model_validate(TINY)), folder)
    config = Qwen3Config.from_pretrained(files)
    config.tie_word_embeddings = True
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(files)  # type: ignore[no-untyped-call]
    return files


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy and a vLLM engine after the first weight sync."""
    on_gpu = request.param == "cuda"
    if on_gpu:
        from vllm.platforms import current_platform

        if not current_platform.is_cuda():
            pytest.skip("needs vLLM built for CUDA")
    config = TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path_factory.mktemp("run")),
            "workers": 1,
            "devicesPerWorker": int(on_gpu),
            "cpusPerWorker": 1,
            "model": {"path": write_tied_model(tmp_path_factory.mktemp("model")), "dtype": "bfloat16"},
            "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
            "rewards": [{"name": "exact"}],
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-6},
            "rollout": {"engine": "vllm", "maxNumSeqs": 8, "freeCacheEngine": on_gpu, "gpuMemoryUtilization": 0.3},
            "checkpoint": {},
        }
    )
    pair = Pair(config, PROBES)
    pair.sync()
    yield pair
    pair.close()


Weights = Iterable[tuple[str, Tensor]]


@pytest.mark.slow
@pytest.mark.long
def test_syncs_of_several_steps_are_not_stale(pair: Pair) -> None:
    for _ in range(5):
        pair.rank.supervised_step(EXAMPLES, 12)
        assert pair.sync() < MAX_DIFFERENCE["bfloat16"]
        assert pair.sync() < MAX_DIFFERENCE["bfloat16"]  # the same weights again


@pytest.mark.slow
@pytest.mark.long
def test_the_engine_has_the_exact_weights_that_were_sent(pair: Pair) -> None:
    """Includes packed kernels, fused q, k and v, and tied embeddings.

    vLLM for CPUs keeps a copy of a tied output layer, in the layout of its kernel. On a GPU both are one tensor.
    """
    pair.rank.supervised_step(EXAMPLES, 12)
    pair.sync()
    held = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    sent = sum_weights(pair.rank._actor.gather_weights())
    assert held.parts == sent.parts
    copies = 1 if pair.rank._on_gpu else 2
    total, elements = sent.weights.pop(EMBEDDING)
    assert held.weights == sent.weights | {EMBEDDING: (copies * total % 2**64, copies * elements)}


def keep_old(old: Weights, new: Weights) -> Weights:
    """Send the weights of the step before."""
    return old


def change_one(old: Weights, new: Weights) -> Weights:
    """Send changed values for a matrix of one layer."""
    return [(name, tensor - 1e-4 if "layers.1.mlp.up_proj" in name else tensor) for name, tensor in new]


@pytest.mark.slow
@pytest.mark.long
def test_an_engine_generates_the_same_after_sleep(pair: Pair) -> None:
    """With freeCacheEngine on GPUs, the engine's memory is free during sleep."""
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    seeds = [1, 2, 3, 4]
    pair.sync()
    before = [response.token_ids for response in pair.generate(prompts, seeds)]
    sleeps = torch.cuda.is_available()
    taken = torch.cuda.mem_get_info()[0] if sleeps else 0
    pair.engines.pause()
    if sleeps:
        free, whole = torch.cuda.mem_get_info()
        assert free - taken > 0.1 * whole  # of gpuMemoryUtilization's 0.3
    pair.rank.log_probs(EXAMPLES)  # uses the freed memory
    pair.sync()
    assert [response.token_ids for response in pair.generate(prompts, seeds)] == before


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("replaced", "where"),
    [(keep_old, r"model\.embed.*layers\.0.*more"), (change_one, r"model\.layers\.1\.mlp\.up_proj\.weight")],
)
def test_a_stale_engine_with_equal_log_probs_is_detected(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, replaced: Callable[..., Weights], where: str
) -> None:
    old = [(name, tensor.clone()) for name, tensor in pair.rank._actor.gather_weights()]
    pair.rank.supervised_step(EXAMPLES, 12)

    def send(weights: Weights, channel: WeightSender) -> None:
        send_weights(replaced(old, list(weights)), channel)

    with monkeypatch.context() as patch:
        patch.setattr(train_worker, "send_weights", send)
        with pytest.raises(StaleWeightsError, match=rf"weights differ from those that were sent \({where}\)"):
            pair.sync()
    probe = build_probe(PROBES, 20)
    expected = pair.rank.probe_log_probs(probe)
    actual = pair.engines.loop.submit(pair.processes.workers[0].log_probs(probe)).result(120)
    assert compare_log_probs(expected, actual, "bfloat16") < MAX_DIFFERENCE["bfloat16"]
    pair.sync()
