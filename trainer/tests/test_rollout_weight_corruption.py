"""A weight sync that leaves garbage in an engine is an error in float32 and bfloat16, and no healthy sync is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from in_process import Pair, build_pair_config
from torch import Tensor, nn
from trained_families import FAMILIES, write_model

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.router_bias import BIAS
from rlt_trainer.rollout.expert_stacks import iterate_experts
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.vllm_engine import VllmEngine
from rlt_trainer.rollout.weight_channel import Received, WeightSender, send_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE, StaleWeightsError
from rlt_trainer.workers import train_worker

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROBES = [Prompt(i, tuple(range(50 + i, 60 + i)), "", "", "", "") for i in range(8)]
EXAMPLES = Sequences.pad([[50, 51]] * 4, [[60, 61, 62]] * 4, pad_token_id=0)
HEAD_DIM = 32
LAYER = "model.layers.1"
DENSE = "Qwen3"
"""With tied embeddings."""
MIXTURE = "GLM-4 MoE"
"""Its routers have a buffer. The first layer has no experts."""

Weights = dict[str, Tensor]
Corrupt = Callable[[Weights, Weights], None]


@pytest.fixture(
    scope="module",
    params=[
        (engine, family, dtype)
        for engine in ("transformers", "vllm")
        for family in (DENSE, MIXTURE)
        for dtype in ("float32", "bfloat16")
    ],
    ids="-".join,
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A policy and an engine after the first weight sync."""
    engine, family, dtype = request.param
    files = tmp_path_factory.mktemp("model")
    write_model(FAMILIES[family], files)
    config = build_pair_config(
        tmp_path_factory.mktemp("run"),
        model={"path": str(files), "dtype": dtype},
        data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 5},
        training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-4},
        rollout={"engine": engine, "maxNumSeqs": 8},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # to call `keep_head` in vLLM's process
        pair = Pair(config, PROBES)
        pair.sync()
        yield pair
        pair.close()


def exchange_gate_and_up(weights: Weights, old: Weights) -> None:
    """In all layers and experts, which transformers has in stacks."""
    for name in list(weights):
        if name.endswith("experts.gate_up_proj"):
            weights[name] = torch.cat(weights[name].chunk(2, dim=1)[::-1], dim=1)
        elif "gate_proj" in name:
            other = name.replace("gate_proj", "up_proj")
            weights[name], weights[other] = weights[other], weights[name]


def reverse_heads(weights: Weights, old: Weights) -> None:
    name = f"{LAYER}.self_attn.q_proj.weight"
    weights[name] = torch.cat(torch.split(weights[name], HEAD_DIM)[::-1])


def exchange_experts(weights: Weights, old: Weights) -> None:
    """The first two of a layer."""
    for name in list(weights):
        if f"{LAYER}.mlp.experts." in name and weights[name].ndim == 3:
            weights[name] = weights[name][[1, 0, *range(2, len(weights[name]))]]


def keep_buffer(weights: Weights, old: Weights) -> None:
    for name in weights:
        if name.endswith(BIAS):
            weights[name] = old[name]


def skip_bucket(weights: Weights, old: Weights) -> None:
    for name in list(weights)[len(weights) // 3 : len(weights) // 2]:
        del weights[name]


def scale(weights: Weights, old: Weights) -> None:
    weights[f"{LAYER}.self_attn.o_proj.weight"] *= 1.02


def transpose(weights: Weights, old: Weights) -> None:
    name = f"{LAYER}.self_attn.o_proj.weight"
    weights[name] = weights[name].T.contiguous()


def change_one_bit(weights: Weights, old: Weights) -> None:
    weights[f"{LAYER}.self_attn.v_proj.weight"].view(torch.uint8)[0, 0] ^= 1


@pytest.mark.parametrize(
    ("corrupt", "found"),
    [
        (exchange_gate_and_up, r"gate.*up"),
        (reverse_heads, rf"{LAYER}\.self_attn\.q_proj\.weight"),
        (exchange_experts, rf"{LAYER}\.mlp\.experts\."),
        (keep_buffer, rf"{LAYER}\.mlp\.gate\.{BIAS}"),
        (skip_bucket, r"layers"),
        (scale, rf"{LAYER}\.self_attn\.o_proj\.weight"),
        (transpose, rf"{LAYER}\.self_attn\.o_proj\.weight"),
        (change_one_bit, rf"{LAYER}\.self_attn\.v_proj\.weight"),
    ],
)
def test_garbage_in_the_weights_that_arrive_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, corrupt: Corrupt, found: str
) -> None:
    old = read_sent(pair, monkeypatch)
    if corrupt in (exchange_experts, keep_buffer) and not any(name.endswith(BIAS) for name in old):
        pytest.skip("the model has no experts")
    train(pair)

    def send(weights: Iterable[tuple[str, Tensor]], channel: WeightSender) -> None:
        new = {name: tensor.clone() for name, tensor in weights}
        corrupt(new, old)
        send_weights(new.items(), channel)

    with monkeypatch.context() as patch:
        patch.setattr(train_worker, "send_weights", send)
        with pytest.raises(StaleWeightsError, match=rf"weights differ from those that were sent \(.*{found}"):
            pair.sync()
    pair.sync()


def test_a_tied_output_layer_that_is_not_updated_is_found(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    if not pair.rank._actor.model.config.tie_word_embeddings:
        pytest.skip("the model has no tied embeddings")
    train(pair)
    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "_load_weights", load_without_head)
        patch.setattr(VllmEngine, "receive_weights", receive_without_head)
        with pytest.raises(StaleWeightsError, match=r"weights differ from those that were sent \((lm_head|.*embed)"):
            pair.sync()
    if isinstance(pair.engine, TransformersEngine):
        pair.engine._model.tie_weights()
    pair.sync()


load = TransformersEngine._load_weights
receive = VllmEngine.receive_weights


def load_without_head(engine: TransformersEngine) -> None:
    engine._model.lm_head.weight = nn.Parameter(engine._model.lm_head.weight.clone())
    load(engine)


async def receive_without_head(engine: VllmEngine) -> Received:
    call: Any = engine._llm.collective_rpc
    await call(keep_head)
    received = await receive(engine)
    await call(restore_head)
    return received


def keep_head(worker: Any) -> None:
    worker.head = worker.get_model().lm_head.cpu_linear


def restore_head(worker: Any) -> None:
    worker.get_model().lm_head.cpu_linear = worker.head


def test_the_place_of_every_weight_is_known(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no corruption is left to the log-probabilities."""
    sent = read_sent(pair, monkeypatch)
    held = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    assert {name for name, (_, elements) in held.weights.items() if elements} == set(
        dict(iterate_experts(sent.items()))
    )


def test_stacks_of_experts_in_several_buckets_arrive(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = [tensor for tensor in read_sent(pair, monkeypatch).values() if tensor.ndim == 3]
    if not stacks:
        pytest.skip("the model has no experts")
    monkeypatch.setattr(pair.rank._channel, "limit", 3 * stacks[0].nbytes // len(stacks[0]))
    assert len(stacks[0]) > 3
    train(pair)
    pair.sync()


def test_healthy_syncs_are_not_reported(pair: Pair) -> None:
    count = 200 if isinstance(pair.engine, TransformersEngine) else 60
    dtype = pair.rank._config.model.dtype
    differences = []
    for _ in range(count):
        train(pair)
        differences.append(pair.sync())
    assert max(differences) < MAX_DIFFERENCE[dtype]


def train(pair: Pair) -> None:
    """Take an optimizer step, and update the biases of the routers."""
    pair.rank.supervised_step(EXAMPLES, 12)
    for name, buffer in pair.rank._actor.model.named_buffers():
        if name.endswith(BIAS):
            buffer += 0.001 * torch.randn(buffer.shape, generator=torch.Generator().manual_seed(0))


def read_sent(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Sync, and return the weights that were sent."""
    sent: Weights = {}

    def send(weights: Iterable[tuple[str, Tensor]], channel: WeightSender) -> None:
        sent.update((name, tensor.clone()) for name, tensor in weights)
        send_weights(sent.items(), channel)

    with monkeypatch.context() as patch:
        patch.setattr(train_worker, "send_weights", send)
        pair.sync()
    return sent
