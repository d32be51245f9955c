"""vLLM and the policy: what a weight sync brings, and that one which brings nothing is found out."""

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
    """A rank alone, with a policy and a vLLM engine that have not met yet."""
    tiny = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
    config = TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(tmp_path_factory.mktemp("run")),
            "workers": 1,
            "devicesPerWorker": 0,
            "cpusPerWorker": 2,
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
def test_an_engine_that_was_never_given_the_weights_is_stale(
    rank: TrainWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank.responder.engine, "update_weights", list)  # consumes the weights and does nothing
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
def test_a_sync_that_brings_nothing_after_an_optimizer_step_is_found_out(
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
    most = 0

    def observed() -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal most
        for name, tensor in rank._actor.gather_weights():
            alive.add(tensor)
            most = max(most, len(alive))
            yield name, tensor

    rank.responder.engine.update_weights(observed())
    assert most <= 12 < len(list(rank._actor.gather_weights()))  # a layer of Qwen3 has 11 tensors


@pytest.mark.slow
def test_responses_repeat_by_seed_and_carry_the_policys_log_probs(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = rank.generate(prompts, [1, 2, 3, 4])
    assert rank.generate(prompts[::-1], [4, 3, 2, 1])[::-1] == responses
    sequences = Sequences.pad(prompts, [response.token_ids for response in responses], pad_token_id=0)
    log_probs, _ = rank.log_probs(sequences)
    for row, response in zip(log_probs.tolist(), responses, strict=True):
        assert row[: len(response.log_probs)] == pytest.approx(response.log_probs, abs=1e-4)


@pytest.mark.slow
def test_greedy_responses_are_the_most_probable_ones(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = rank.generate_greedily(prompts, [0] * 4)
    assert responses == rank.generate_greedily(prompts, [1] * 4)
    top_1 = replace(rank.responder.sampling, top_k=1)
    drawn = rank.responder.engine.generate(prompts, [5] * 4, top_1)
    assert [each.token_ids for each in drawn] == [each.token_ids for each in responses]
    assert {value for each in drawn for value in each.log_probs} == {0.0}  # there was one token to choose from


@pytest.mark.slow
def test_new_weights_do_not_meet_what_older_ones_left_in_the_prefix_cache(rank: TrainWorker) -> None:
    rank.sync_weights()
    prompt = [list(range(50, 98))]  # more than a block of the cache
    rank.generate(prompt, [1])
    rank.supervised_step(EXAMPLES, 12)
    assert rank.sync_weights() < 1e-4
    (response,) = rank.generate(prompt, [1])
    log_probs, _ = rank.log_probs(Sequences.pad(prompt, [response.token_ids], pad_token_id=0))
    assert log_probs[0].tolist() == pytest.approx(response.log_probs, abs=1e-4)


@pytest.mark.slow
def test_adapters_come_merged_into_the_weights(rank: TrainWorker, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_update_interrupts_a_generation_which_goes_on_with_the_new_weights(rank: TrainWorker) -> None:
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
def test_a_prompt_that_does_not_fit_names_what_to_do(rank: TrainWorker) -> None:
    with pytest.raises(EngineError, match=r"must fit in rollout\.maxModelLen"):
        rank.generate([[50] * 80], [1])
    assert len(rank.generate([[50]], [1])) == 1  # and the engine goes on


@pytest.mark.slow
def test_an_option_that_vllm_does_not_have_is_refused_by_name() -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=5, stop_token_ids=())
    rollout = Rollout(engine_kwargs={"blok_size": 16})
    with pytest.raises(ValueError, match="vLLM has no option blok_size"):
        VllmEngine("/model", dtype="float32", rollout=rollout, sampling=sampling, max_model_len=21, seed=0)


class SetAfter(Event):
    """An event that is set when it has been asked so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def flat(responses: list[Response]) -> list[float]:
    return [value for response in responses for value in response.log_probs]
