"""vLLM and the policy: weight syncs, their verification, generation and interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch
from in_process import Pair, build_vllm_config
from torch.distributed.device_mesh import init_device_mesh

from rlt_api.blocks.model import Lora
from rlt_api.blocks.rollout import Rollout
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.actor import Actor
from rlt_trainer.rollout.engine import EngineError, Request
from rlt_trainer.rollout.vllm_engine import VllmEngine
from rlt_trainer.rollout.weight_channel import WeightSender, send_weights
from rlt_trainer.rollout.weight_sync import StaleWeightsError, build_probe
from rlt_trainer.telemetry.engine_counters import PREEMPTIONS, EngineCounters
from rlt_trainer.workers import train_worker

PROBES = [Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)]
BATCH = 69
"""Tokens in a batch: the longest sequence."""
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy and a vLLM engine, before the first weight sync."""
    config = build_vllm_config(
        tmp_path_factory.mktemp("run"),
        engineKwargs={"block_size": 32},
        freeCacheEngine=True,
        maxNumBatchedTokens=BATCH,
    )
    with pytest.warns(UserWarning, match=r"rollout\.freeCacheEngine has no effect: vLLM supports sleep mode"):
        pair = Pair(config, PROBES)
    yield pair
    pair.close()


def send_other(monkeypatch: pytest.MonkeyPatch, weights: list[tuple[str, torch.Tensor]]) -> None:
    """Send `weights` instead of the policy's."""

    def send(policy: Iterable[tuple[str, torch.Tensor]], channel: WeightSender) -> None:
        list(policy)
        send_weights(weights, channel)

    monkeypatch.setattr(train_worker, "send_weights", send)


@pytest.mark.slow
def test_log_probs_agree_after_every_sync_of_twenty_steps(pair: Pair) -> None:
    differences = []
    for _ in range(20):
        pair.rank.supervised_step(EXAMPLES, 12)
        differences.append(pair.sync())
    assert max(differences) < 1e-4


@pytest.mark.slow
def test_a_sync_without_effect_after_an_optimizer_step_is_detected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.sync()
    before = [(name, tensor.clone()) for name, tensor in pair.rank._actor.gather_weights()]
    pair.rank.supervised_step(EXAMPLES, 12)
    with monkeypatch.context() as patch:
        send_other(patch, before)
        with pytest.raises(StaleWeightsError, match="Stale weights"):
            pair.sync()
    assert pair.sync() < 1e-4


@pytest.mark.slow
def test_responses_depend_on_the_seed_and_have_the_log_probs_of_the_policy(pair: Pair) -> None:
    pair.sync()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    responses = pair.generate(prompts, [1, 2, 3, 4])
    assert [each.token_ids for each in pair.generate(prompts[::-1], [4, 3, 2, 1])[::-1]] == [
        each.token_ids for each in responses
    ]
    assert pair.generate(prompts, [1, 2, 3, 4]) == responses  # the same batch: bit for bit
    assert_log_probs_of_the_policy(pair, prompts, responses)


@pytest.mark.slow
def test_prompts_that_exceed_a_batch_together_are_not_split(pair: Pair) -> None:
    """On CPUs vLLM fails after a part of a prompt whose request has a seed."""
    pair.sync()
    prompts = [[50 + number] * (BATCH - 9) for number in range(4)]
    responses = pair.generate(prompts, [1, 2, 3, 4])
    alone = [pair.generate([prompt], [seed]) for seed, prompt in enumerate(prompts, 1)]
    assert [each.token_ids for each in responses] == [each.token_ids for (each,) in alone]


@pytest.mark.slow
def test_greedy_responses_are_the_most_probable(pair: Pair) -> None:
    pair.sync()
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    sampling = pair.engines.sampling
    responses = pair.generate(prompts, [0] * 4, sampling.greedy())
    assert responses == pair.generate(prompts, [1] * 4, sampling.greedy())
    for truncated in (replace(sampling, top_k=1), replace(sampling, min_p=0.999999)):
        sampled = pair.generate(prompts, [5] * 4, truncated)
        assert [each.token_ids for each in sampled] == [each.token_ids for each in responses]
        assert {value for each in sampled for value in each.log_probs} == {0.0}  # only one token has a probability


@pytest.mark.slow
def test_metrics_of_vllm_count_the_generated_tokens(pair: Pair) -> None:
    def read() -> dict[str, float]:
        (families,) = pair.engines.read_metrics().values()
        samples = [sample for family in families for sample in family.samples]
        assert not any({"model_name", "engine"} & sample.labels.keys() for sample in samples)
        return {sample.name: sample.value for sample in samples}

    pair.sync()
    before = read()
    responses = pair.generate([list(prompt.token_ids) for prompt in PROBES], [1, 2, 3, 4])
    after = read()
    tokens = sum(len(each.token_ids) for each in responses)
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == tokens
    assert after["vllm:e2e_request_latency_seconds_count"] - before["vllm:e2e_request_latency_seconds_count"] == 4
    assert after["vllm:num_requests_running"] == 0
    assert not any(name.endswith("_bucket") for name in after)


@pytest.mark.slow
def test_a_sync_resets_the_prefix_cache(pair: Pair) -> None:
    pair.sync()
    prompt = [list(range(50, 98))]  # more than a block of the cache
    pair.generate(prompt, [1])
    pair.rank.supervised_step(EXAMPLES, 12)
    assert pair.sync() < 1e-4
    assert_log_probs_of_the_policy(pair, prompt, pair.generate(prompt, [1]))


@pytest.mark.slow
def test_a_sync_merges_adapters(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    model, algorithm, training = (getattr(pair.rank._config, name) for name in ("model", "algorithm", "training"))
    adapted = Actor(
        pair.rank._files,
        model=model.model_copy(update={"lora": Lora(rank=4)}),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=algorithm,
        training=training,
        temperature=1.0,
        max_response_length=5,
    )
    monkeypatch.setattr(pair.rank, "_actor", adapted)
    before = torch.tensor(pair.rank.probe_log_probs(build_probe(PROBES, 20)))
    for _ in range(3):
        pair.rank.supervised_step(EXAMPLES, 12)
        assert pair.sync() < 1e-4
    assert not torch.allclose(torch.tensor(pair.rank.probe_log_probs(build_probe(PROBES, 20))), before, atol=1e-2)


@pytest.mark.slow
def test_responses_in_progress_continue_with_new_weights(pair: Pair) -> None:
    pair.sync()
    long = replace(pair.engines.sampling, max_tokens=60, stop_token_ids=())
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    counters = EngineCounters()
    counters.take(*pair.engines.read_metrics().values())
    running = pair.start(prompts * 8, list(range(32)), long)  # 8 run at the same time
    pair.rank.supervised_step(EXAMPLES, 12)
    assert pair.sync() < 1e-4
    responses = running.result(120)
    assert counters.take(*pair.engines.read_metrics().values())[PREEMPTIONS] > 0
    assert {each.finish_reason for each in responses} <= {"stop", "length"}
    is_new = [
        (torch.tensor(each.log_probs) - row).abs() < 1e-4
        for each, row in zip(responses, pair.policy_log_probs(prompts * 8, responses), strict=True)
    ]
    assert any(row.all() for row in is_new)  # responses that started after the sync
    assert any(row.any() and not row.all() for row in is_new)  # responses in progress: from one token on
    assert all(row[int(row.int().argmax()) :].all() for row in is_new if row.any())


@pytest.mark.slow
def test_requests_that_arrive_while_an_idle_engine_pauses_do_not_resume_it(pair: Pair) -> None:
    pair.sync()
    engine = pair.engine
    assert isinstance(engine, VllmEngine)
    request = Request(10**6, [50, 51], 1, replace(pair.engines.sampling, stop_token_ids=()), 4)
    ended = asyncio.Event()

    async def submit_beside_pause() -> bool:
        await asyncio.gather(engine.submit([request], lambda number, result: ended.set()), engine.pause())
        return await engine._llm.is_paused()

    async def resume() -> None:
        await engine.resume()
        await ended.wait()

    assert pair.engines.loop.submit(submit_beside_pause()).result(120)
    pair.engines.loop.submit(resume()).result(120)


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_an_error_with_a_fix(pair: Pair) -> None:
    with pytest.raises(EngineError, match=r"must fit in rollout\.maxModelLen"):
        pair.generate([[50] * 80], [1])
    assert len(pair.generate([[50]], [1])) == 1  # the engine still works


@pytest.mark.slow
def test_an_unknown_vllm_option_is_rejected_by_name() -> None:
    rollout = Rollout(engine_kwargs={"blok_size": 16})
    with pytest.raises(ValueError, match="vLLM has no option blok_size"):
        VllmEngine("/model", dtype="float32", rollout=rollout, max_model_len=21, seed=0)


def assert_log_probs_of_the_policy(pair: Pair, prompts: list[list[int]], responses: list[Response]) -> None:
    for row, response in zip(pair.policy_log_probs(prompts, responses), responses, strict=True):
        assert row.tolist() == pytest.approx(list(response.log_probs), abs=1e-4)
