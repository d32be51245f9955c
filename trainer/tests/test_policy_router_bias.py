"""The correction biases of routers balance the experts, on any number of ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from model_families import FAMILIES as ALL_FAMILIES
from ranks import join, run_ranks
from tiny_families import build_tiny_config
from torch.distributed.device_mesh import init_device_mesh
from trained_families import FAMILIES, write_model
from transformers import AutoModelForCausalLM, DeepseekV3Config, Qwen3MoeConfig

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_api.rules.model_families import ROUTER_BIAS
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.families import find_auto_class, validate_router_bias
from rlt_trainer.policy.model import iterate_buffers
from rlt_trainer.policy.router_bias import BIAS, compute_change, find_routers

PROMPTS = [[51, 52, 53], [54, 55], [56, 57]]
RESPONSES = [[58, 59], [60, 61, 62], [63]]
RATE = 0.01
EXPERTS = 8
SELECTED = 2


def test_the_change_follows_from_the_counts() -> None:
    assert compute_change(torch.tensor([6.0, 1.0, 3.0, 2.0]), 0.5).tolist() == [-0.5, 0.5, 0.0, 0.5]
    assert compute_change(torch.full((4,), 7.0), 0.5).tolist() == [0.0] * 4
    uneven = torch.tensor([2.0**24, 2.0**24 - 1, 2.0**24 - 2])  # their sum has no exact float32
    assert compute_change(uneven, 0.5).tolist() == [-0.5, 0.0, 0.5]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixture")
    write_model(FAMILIES["GLM-4 MoE"], folder)
    return str(folder)


def build_actor(files: str, rate: float, settings: dict[str, Any] | None = None, *, lr: float = 1e-3) -> Actor:
    settings = settings or {}
    return Actor(
        files,
        model=Model(**settings.get("model", {})),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
        algorithm=Algorithm(kl_loss_coef=0.1, router_bias_update_rate=rate),
        training=Training(total_steps=1, learning_rate=lr, **settings.get("training", {})),
        temperature=1.0,
        max_response_length=3,
    )


def build_batch(rows: slice = slice(None), *, advantage: float = 1.0) -> MiniBatch:
    """The third sequence is not trained on."""
    sequences = Sequences.pad(PROMPTS, RESPONSES, pad_token_id=0).clear(torch.tensor([False, False, True])).rows(rows)
    zeros = torch.zeros(sequences.response_mask.shape)
    return MiniBatch(Experience(sequences, zeros, zeros + advantage, ref_log_probs=zeros), 5, 2)


def read_biases(actor: Actor) -> torch.Tensor:
    """Return the biases [layers, experts]."""
    return torch.stack([buffer.clone() for name, buffer in actor.gather_weights() if name.endswith(BIAS)])


@torch.no_grad()
def count_with_transformers(files: str) -> torch.Tensor:
    """Count the tokens of each expert [layers, experts] in the first two sequences."""
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    selected: dict[str, list[torch.Tensor]] = {}
    for name, gate in model.named_modules():
        if BIAS in dict(gate.named_buffers(recurse=False)):
            gate.register_forward_hook(lambda gate, inputs, output, name=name: selected[name].append(output[2]))
            selected[name] = []
    for prompt, response in zip(PROMPTS[:2], RESPONSES[:2], strict=True):
        model(input_ids=torch.tensor([prompt + response]))
    return torch.stack([torch.cat(each).flatten().bincount(minlength=EXPERTS) for each in selected.values()])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"training": {"ppo_micro_batch_size_per_device": 1}},
        {"model": {"use_remove_padding": True}},
        {"model": {"enable_gradient_checkpointing": True}},
        {"training": {"fsdp": {"param_offload": True}}},
    ],
    ids=str,
)
def test_an_update_moves_the_biases_by_the_rate(settings: dict[str, Any], files: str, process_group: None) -> None:
    actor = build_actor(files, RATE, settings)
    before = read_biases(actor)
    batch = build_batch()
    reference = actor.ref_log_probs(batch.experience.sequences)
    actor.update(batch)
    counts = count_with_transformers(files).double()
    assert counts.sum(1).tolist() == [SELECTED * 10] * len(before)
    expected = RATE * (counts.mean(1, keepdim=True) - counts).sign()
    assert expected.abs().sum() > 0
    torch.testing.assert_close(read_biases(actor) - before, expected.float(), rtol=0, atol=1e-7)
    assert torch.equal(actor.ref_log_probs(batch.experience.sequences), reference), "the reference keeps its biases"


def test_without_a_rate_and_in_a_skipped_step_the_biases_stay(files: str, process_group: None) -> None:
    for rate, advantage in ((0.0, 1.0), (RATE, float("nan"))):
        actor = build_actor(files, rate)
        before = read_biases(actor)
        assert actor.update(build_batch(advantage=advantage)).skipped == (rate > 0)
        assert torch.equal(read_biases(actor), before)


def test_a_skewed_router_becomes_balanced(files: str, process_group: None) -> None:
    def run(rate: float) -> tuple[dict[str, float], dict[str, float]]:
        actor = build_actor(files, rate, lr=1e-6)
        with torch.no_grad():
            for name, buffer in iterate_buffers(actor.model):
                if name.endswith(BIAS):
                    buffer[:SELECTED] += 0.3  # most tokens select these experts
        shares = [actor.update(build_batch()).shares for _ in range(40)]
        return shares[0], shares[-1]

    start, end = run(RATE)
    _, unchanged = run(0.0)
    assert start["actor/expert_load_max"] > 2.5
    assert end["actor/expert_load_max"] < 0.75 * start["actor/expert_load_max"]
    assert end["actor/expert_load_entropy"] > start["actor/expert_load_entropy"] + 0.1
    assert unchanged["actor/expert_load_max"] > end["actor/expert_load_max"]


@pytest.mark.slow
def test_two_ranks_have_the_biases_of_one(files: str, process_group: None) -> None:
    actor = build_actor(files, RATE)
    for _ in range(3):
        actor.update(build_batch())
    alone = read_biases(actor)
    for settings in ({}, {"model": {"use_remove_padding": True}, "training": {"context_parallel_size": 2}}):
        both = run_ranks(one_rank, [(files, rank, settings) for rank in range(2)])
        assert both == [alone.tolist()] * 2, settings


def one_rank(files: str, rank: int, settings: dict[str, Any]) -> list[list[float]]:
    """Take three steps with one of the trained sequences on each rank, or with a part of both."""
    join(rank, 2)
    actor = build_actor(files, RATE, settings)
    rows = slice(None) if settings else slice(rank, rank + 1)
    for _ in range(3):
        actor.update(build_batch(rows))
    biases: list[list[float]] = read_biases(actor).tolist()
    dist.destroy_process_group()
    return biases


@pytest.mark.parametrize("model_type", ROUTER_BIAS)
def test_every_router_of_a_listed_family_has_a_bias_in_float32(model_type: str) -> None:
    assert model_type in ALL_FAMILIES
    config = build_tiny_config(model_type)
    with torch.device("meta"):
        model = find_auto_class(config).from_config(config, dtype=torch.bfloat16)
    routers = find_routers(model)
    experts = [name for name, module in model.named_modules() if name.endswith(".experts")]
    assert experts == list(routers)
    for name, router in routers.items():
        assert router.get_buffer(BIAS).shape == (model.get_submodule(name).num_experts,)
        assert BIAS in model._keep_in_fp32_modules_strict


def test_a_family_without_a_bias_is_rejected() -> None:
    validate_router_bias(DeepseekV3Config(), RATE)
    validate_router_bias(Qwen3MoeConfig(), 0.0)
    with pytest.raises(
        ValueError, match=r"algorithm\.routerBiasUpdateRate: 0\.01: .* of qwen3_moe models have no correction bias"
    ):
        validate_router_bias(Qwen3MoeConfig(), RATE)
