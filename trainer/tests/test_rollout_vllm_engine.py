"""vLLM and the policy: weight syncs, their verification, generation and interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from weakref import WeakSet

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from rlt_api.blocks.model import Lora
from rlt_api.blocks.rollout import Rollout
from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.actor import Actor
from rlt_trainer.rollout.engine import EngineError, Sampling
from rlt_trainer.rollout.vllm_engine import VllmEngine
from rlt_trainer.rollout.weight_sync import StaleWeightsError
from rlt_trainer.workers.train_worker import TrainWorker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainWorker]:
    """A single rank with a policy and a vLLM engine, before the first weight sync."""
    tiny = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
    config = TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path_factory.mktemp("run")),
            "workers": 1,
            "devicesPerWorker": 0,
            "cpusPerWorker": 1,
            "model": {"fromSeed": tiny},
            "data": {"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
            "rewards": [{"name": "exact"}],
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-3},
            "rollout": {"engine": "vllm", "maxNumSeqs": 8, "engineKwargs": {"block_size": 32}, "freeCacheEngine": True},
            "checkpoint": {},
        }
    )
    rank = TrainWorker(config, 0, 1, address="127.0.0.1")
    rank.connect(rank.rendezvous())
    rank.load_models()
    with pytest.warns(UserWarning, match=r"rollout\.freeCacheEngine has no effect: vLLM supports sleep mode"):
        rank.start_engine(PROBES)
    yield rank
    rank.close()


@pytest.mark.slow
def test_an_engine_without_a_weight_sync_is_stale(rank: TrainWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank.responder.engine, "update_weights", list)  # consumes the weights without loading them
    with pytest.raises(StaleWeightsError, match="Stale weights"):
        rank.sync_weights()


@pytest.mark.slow
def test_log_probs_agree_after_every_sync_of_twenty_steps(rank: TrainWorker) -> None:
    differences = []
    for _ in range(20):
        rank.supervised_step(EXAMPLES, 12)
        differences.append(rank.sync_weights())
    assert max(differences) < 1e-4


@pytest.mark.slow
def test_a_sync_without_effect_after_an_optimizer_step_is_detected(
    rank: TrainWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.sync_weights()
    rank.supervised_step(EXAMPLES, 12)
    with monkeypatch.context() as patch:
        patch.setattr(rank.responder.engine, "update_weights", list)
        with pytest.raises(StaleWeightsError):
            rank.sync_weights()
    assert rank.sync_weights() < 1e-4


@pytest.mark.slow
def test_a_sync_holds_one_layer_at_a_time(rank: TrainWorker) -> None:
    alive: WeakSet[torch.Tensor] = WeakSet()
    peak = 0

    def observed() -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal peak
        for name, tensor in rank._actor.gather_weights():
            alive.add(tensor)
            peak = max(peak, len(alive))
            yield name, tensor

    rank.responder.engine.update_weights(observed())
    assert peak <= 12 < len(list(rank._actor.gather_weights()))  # a layer of Qwen3 has 11 tensors


@pytest.mark.slow
def test_responses_depend_on_the_seed_and_have_the_log_probs_of_the_policy(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = rank.generate(prompts, [1, 2, 3, 4])
    assert rank.generate(prompts[::-1], [4, 3, 2, 1])[::-1] == responses
    sequences = Sequences.pad(prompts, [response.token_ids for response in responses], pad_token_id=0)
    log_probs, _ = rank.log_probs(sequences)
    for row, response in zip(log_probs.tolist(), responses, strict=True):
        assert row[: len(response.log_probs)] == pytest.approx(response.log_probs, abs=1e-4)


@pytest.mark.slow
def test_greedy_responses_are_the_most_probable(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = rank.generate_greedily(prompts, [0] * 4)
    assert responses == rank.generate_greedily(prompts, [1] * 4)
    top_1 = replace(rank.responder.sampling, top_k=1)
    sampled = rank.responder.engine.generate(prompts, [5] * 4, top_1)
    assert [each.token_ids for each in sampled] == [each.token_ids for each in responses]
    assert {value for each in sampled for value in each.log_probs} == {0.0}  # only one token has a probability


@pytest.mark.slow
def test_a_sync_resets_the_prefix_cache(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompt = [list(range(50, 98))]  # more than a block of the cache
    rank.generate(prompt, [1])
    rank.supervised_step(EXAMPLES, 12)
    assert rank.sync_weights() < 1e-4
    (response,) = rank.generate(prompt, [1])
    log_probs, _ = rank.log_probs(Sequences.pad(prompt, [response.token_ids], pad_token_id=0))
    assert log_probs[0].tolist() == pytest.approx(response.log_probs, abs=1e-4)


@pytest.mark.slow
def test_a_sync_merges_adapters(rank: TrainWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    model, algorithm, training = (getattr(rank._config, name) for name in ("model", "algorithm", "training"))
    adapted = Actor(
        rank._files,
        model=model.model_copy(update={"lora": Lora(rank=4)}),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=algorithm,
        training=training,
        temperature=1.0,
        max_response_length=5,
    )
    monkeypatch.setattr(rank, "_actor", adapted)
    before = rank.probe_log_probs()
    for _ in range(3):
        rank.supervised_step(EXAMPLES, 12)
        assert rank.sync_weights() < 1e-4
    assert not torch.allclose(rank.probe_log_probs(), before, atol=1e-2)


@pytest.mark.slow
def test_an_interrupted_generation_continues_with_new_weights(rank: TrainWorker) -> None:
    rank.sync_weights()
    plain, prompts = rank.responder.engine, [list(prompt.token_ids) for prompt in PROBES]
    part = plain.generate(prompts, [1, 2, 3, 4], interrupt=SetAfter(3))
    assert [(len(each.token_ids), each.finish_reason) for each in part] == [(3, "abort")] * 4
    old = Sequences.pad(prompts, [each.token_ids for each in part], pad_token_id=0)
    assert rank.log_probs(old)[0].flatten().tolist() == pytest.approx(flat(part), abs=1e-4)

    rank.supervised_step(EXAMPLES, 12)
    assert rank.sync_weights() < 1e-4
    longer = [[*prompt, *each.token_ids] for prompt, each in zip(prompts, part, strict=True)]
    rest = plain.generate(longer, [1, 2, 3, 4], max_tokens=[2] * 4)
    new = Sequences.pad(longer, [each.token_ids for each in rest], pad_token_id=0)
    log_probs = rank.log_probs(new)[0]
    assert log_probs[new.response_mask].tolist() == pytest.approx(flat(rest), abs=1e-4)


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_an_error_with_a_fix(rank: TrainWorker) -> None:
    with pytest.raises(EngineError, match=r"must fit in rollout\.maxModelLen"):
        rank.generate([[50] * 80], [1])
    assert len(rank.generate([[50]], [1])) == 1  # the engine still works


@pytest.mark.slow
def test_an_unknown_vllm_option_is_rejected_by_name() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=5, stop_token_ids=())
    rollout = Rollout(engine_kwargs={"blok_size": 16})
    with pytest.raises(ValueError, match="vLLM has no option blok_size"):
        VllmEngine("/model", dtype="float32", rollout=rollout, sampling=sampling, max_model_len=21, seed=0)


class SetAfter(Event):
    """An event that is set after `times` calls of is_set."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def flat(responses: list[Response]) -> list[float]:
    return [value for response in responses for value in response.log_probs]
