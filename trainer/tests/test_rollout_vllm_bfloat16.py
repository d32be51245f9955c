"""Weight sync to vLLM in bfloat16, in which rounding hides an optimizer step from log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.model import prepare_model_files
from rlt_trainer.rollout.weight_sums import sum_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE, StaleWeightsError, verify_log_probs
from rlt_trainer.workers.train_worker import TrainWorker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
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
def rank(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainWorker]:
    """A single rank after its first weight sync."""
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
    rank = TrainWorker(config, 0, 1, address="127.0.0.1")
    rank.connect(rank.rendezvous())
    rank.load_models()
    rank.start_engine(PROBES)
    rank.sync_weights()
    yield rank
    rank.close()


Weights = Iterable[tuple[str, Tensor]]


@pytest.mark.slow
def test_syncs_of_several_steps_are_not_stale(rank: TrainWorker) -> None:
    for _ in range(5):
        rank.supervised_step(EXAMPLES, 12)
        assert rank.sync_weights() < MAX_DIFFERENCE["bfloat16"]
        assert rank.sync_weights() < MAX_DIFFERENCE["bfloat16"]  # the same weights again


@pytest.mark.slow
def test_the_engine_has_the_exact_weights_that_were_sent(rank: TrainWorker) -> None:
    """Includes packed kernels, fused q, k and v, and tied embeddings."""
    rank.supervised_step(EXAMPLES, 12)
    rank.sync_weights()
    assert rank.responder.engine.sum_weights() == sum_weights(rank._actor.gather_weights())


def skip_update(_: Callable[[Weights], None], weights: Weights) -> None:
    """Consume the weights without loading them."""
    list(weights)


def change_one(update: Callable[[Weights], None], weights: Weights) -> None:
    """Load changed values for a matrix of one layer."""
    update((name, tensor - 1e-4 if "layers.1.mlp.up_proj" in name else tensor) for name, tensor in weights)


@pytest.mark.slow
def test_an_engine_generates_the_same_after_sleep(rank: TrainWorker) -> None:
    """With freeCacheEngine on GPUs, the engine's memory is free during sleep."""
    prompts, seeds = [list(prompt.token_ids) for prompt in PROBES], [1, 2, 3, 4]
    rank.sync_weights()
    before = [response.token_ids for response in rank.generate(prompts, seeds)]
    sleeps = torch.cuda.is_available()
    taken = torch.cuda.mem_get_info()[0] if sleeps else 0
    rank.sleep_engine()
    if sleeps:
        free, whole = torch.cuda.mem_get_info()
        assert free - taken > 0.1 * whole  # of gpuMemoryUtilization's 0.3
    rank.log_probs(EXAMPLES)  # uses the freed memory
    rank.sync_weights()
    assert [response.token_ids for response in rank.generate(prompts, seeds)] == before


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "where"), [(skip_update, r"embedding.*, layer 0, layer 1"), (change_one, r"layer 1")])
def test_a_stale_engine_with_equal_log_probs_is_detected(
    rank: TrainWorker, monkeypatch: pytest.MonkeyPatch, sync: Callable[..., None], where: str
) -> None:
    engine = rank.responder.engine
    rank.supervised_step(EXAMPLES, 12)
    with monkeypatch.context() as patch:
        update = engine.update_weights
        patch.setattr(engine, "update_weights", lambda weights: sync(update, weights))
        with pytest.raises(StaleWeightsError, match=rf"weights differ from those that were sent \({where}\)"):
            rank.sync_weights()
    assert verify_log_probs(engine, rank._probe, rank.probe_log_probs(), "bfloat16") < MAX_DIFFERENCE["bfloat16"]
    rank.sync_weights()
