"""A mixture trains the same on any number of ranks, whether ranks split its experts or gather them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose
from ranks import join, run_ranks
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

STEPS = 3
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
EXPERTS = 8
PACKED = {"model": {"use_remove_padding": True}}
TOLERANCE = 1e-5

Variant = dict[str, dict[str, Any]]


def on(size: int, *, model: dict[str, Any] | None = None, **training: Any) -> Variant:
    """A variant with its settings of `model` and `training`."""
    return {"model": model or {}, "training": {"expert_parallel_size": size, **training}}


SAVED = "two parts"
"""The variant that saves a checkpoint before its last update."""
RESUMED: dict[str, Variant] = {"resumed without parts": on(1), "resumed with four parts": on(4)}
"""Variants on four ranks that take the last update from that checkpoint."""
VARIANTS: dict[int, dict[str, Variant]] = {
    1: {"one rank": on(1), "one rank, packed": on(1, **PACKED)},
    2: {
        "two ranks": on(1),
        "two parts": on(2),
        "two parts, packed": on(2, **PACKED),
        "two parts, one row at a time": on(2, ppo_micro_batch_size_per_device=1),
        "two parts, checkpointing": on(2, model={"enable_gradient_checkpointing": True}),
        "two parts, dynamic": on(2, **PACKED, use_dynamic_bsz=True, ppo_max_token_len_per_device=20),
        "two parts, context parallel": on(2, **PACKED, context_parallel_size=2),
        "two parts, gathered once": on(2, fsdp={"reshard_after_forward": False}),
    },
    4: {
        "four ranks": on(1),
        "two parts on two ranks each": on(2),
        "two parts on two ranks each, packed": on(2, **PACKED),
        "two parts on two ranks each, context parallel": on(2, **PACKED, context_parallel_size=2),
        "four parts, packed": on(4, **PACKED),
        **RESUMED,
    },
}
"""Variants by number of ranks."""


@dataclass(frozen=True)
class Run:
    """The result of STEPS updates."""

    steps: dict[str, list[float]]
    """Metrics of all ranks and gradient norms."""
    weights: dict[str, Any]
    """Full weights after the updates, as NumPy arrays, which can be sent after the end of their process."""
    sent: dict[str, Any]
    """What the engine gets: the weights in the format of the files."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixture")
    heads: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256}
    config = Qwen3MoeConfig(num_experts=EXPERTS, num_experts_per_tok=2, norm_topk_prob=True, **SIZES, **heads)
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    return str(folder)


def train(files: str, checkpoints: Path, ranks: int) -> dict[str, Run]:
    """Run all variants of a number of ranks in separate processes. Return the results of rank 0."""
    return run_ranks(one_rank, [(files, checkpoints, rank, ranks) for rank in range(ranks)])[0]


@pytest.fixture(scope="module")
def runs(files: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    return {name: run for ranks in VARIANTS for name, run in train(files, checkpoints, ranks).items()}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [name for variants in VARIANTS.values() for name in variants])
def test_losses_and_weights_are_the_same(runs: dict[str, Run], variant: str, files: str) -> None:
    expected = runs["one rank"]
    run = runs[variant]
    assert expected.steps["grad_norm"][0] > 1e-2
    assert run.steps.keys() == expected.steps.keys()
    for name, steps in run.steps.items():
        assert steps == pytest.approx(expected.steps[name][-len(steps) :], rel=TOLERANCE, abs=TOLERANCE), name
    assert_same(run.weights, expected.weights)
    initial = dict(Qwen3MoeForCausalLM.from_pretrained(files).named_parameters())
    experts = {name: torch.from_numpy(run.weights[name]) for name in run.weights if "experts" in name}
    assert experts, "transformers stacks the experts"
    for name, weight in experts.items():
        assert (weight - initial[name]).abs().max() > 100 * TOLERANCE, "the updates are large enough to differ"


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two parts", "two parts on two ranks each", "four parts, packed"])
def test_the_engine_gets_single_experts(runs: dict[str, Run], variant: str) -> None:
    sent = runs[variant].sent
    assert {f"model.layers.0.mlp.experts.{each}.down_proj.weight" for each in range(EXPERTS)} < sent.keys()
    assert_same(sent, runs["one rank"].sent)


def assert_same(weights: dict[str, Any], expected: dict[str, Any]) -> None:
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert_allclose(weight, expected[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def one_rank(files: str, checkpoints: Path, rank: int, ranks: int) -> dict[str, Run]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    join(rank, ranks)
    results = {}
    for name, settings in VARIANTS[ranks].items():
        saves = name == SAVED
        resumes = name in RESUMED
        model = settings["model"]
        training = settings["training"]
        results[name] = update(files, checkpoints, rank, model=model, training=training, saves=saves, resumes=resumes)
    dist.destroy_process_group()
    return results


def update(
    files: str,
    checkpoints: Path,
    rank: int,
    *,
    model: dict[str, Any],
    training: dict[str, Any],
    saves: bool = False,
    resumes: bool = False,
    rate: float = 0.0,
    exported: Path | None = None,
) -> Run:
    """Take STEPS updates. rate: algorithm.routerBiasUpdateRate. exported: the folder to export to."""
    import torch.distributed as dist
    from test_policy_ranks import make_experience

    from rlt_api.blocks.algorithm import Algorithm
    from rlt_api.blocks.checkpoint import Checkpoint
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import MiniBatch
    from rlt_trainer.checkpoint.driver_state import DriverState
    from rlt_trainer.checkpoint.export import export
    from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
    from rlt_trainer.checkpoint.resume import resume
    from rlt_trainer.checkpoint.saver import Saver
    from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
    from rlt_trainer.policy.actor import Actor
    from rlt_trainer.policy.mesh import create_mesh, data_parallel_size
    from rlt_trainer.policy.weight_files import to_file_format
    from rlt_trainer.rollout.expert_stacks import iterate_experts

    ranks = dist.get_world_size()
    block = Training.model_validate({"total_steps": STEPS, "learning_rate": 1e-3, **training})
    actor = Actor(
        files,
        model=Model.model_validate(model),
        dtype=torch.float32,
        mesh=create_mesh("cpu", block, ranks),
        algorithm=Algorithm(
            kl_loss_coef=0.1, entropy_coeff=0.01, loss_agg_mode="seq-mean-token-mean", router_bias_update_rate=rate
        ),
        training=block,
        temperature=0.9,
        max_response_length=6,
    )
    parts = data_parallel_size(block, ranks)
    whole = make_experience()
    rows = len(whole) // parts
    part = rank * parts // ranks
    mask = whole.sequences.response_mask
    mine = whole.rows(slice(part * rows, (part + 1) * rows))
    batch = MiniBatch(mine, total_tokens=int(mask.sum()), total_sequences=len(whole))
    state: Parts = {"model": ModelState(actor.model), "optimizer": OptimizerState(actor.model, actor.optimizers)}
    config = Checkpoint(asynchronous=False)
    start = 1
    results = []
    if resumes:
        resumed = resume(checkpoints, config, state)
        assert resumed is not None
        start = resumed.step + 1
        assert start == STEPS
    for step in range(start, STEPS + 1):
        if saves and step == STEPS:
            (outcome,) = Saver(checkpoints, config).save(step - 1, state, DriverState())
            assert outcome.error is None
        results.append(actor.update(batch))
    reference = actor.ref_log_probs(mine.sequences)[mine.sequences.response_mask].sum()
    names = list(results[0].shares)
    shares = torch.tensor([[*(each.shares[name] for name in names), float(reference)] for each in results])
    shares[:, -1] *= parts / ranks
    dist.all_reduce(shares)
    steps = dict(zip([*names, "reference"], shares.T.tolist(), strict=True))
    if exported is not None:
        export(actor.model, build_byte_tokenizer(), exported, torch.float32)
    sent = to_file_format(actor.model, actor.gather_weights())
    return Run(
        {**steps, "grad_norm": [each.grad_norm for each in results]},
        {name: weight.numpy() for name, weight in actor.gather_weights()},
        {name: weight.numpy() for name, weight in iterate_experts(sent)},
    )


@pytest.mark.slow
def test_a_rank_without_tokens_has_gradients_of_zero() -> None:
    """Otherwise FSDP2 would leave out its experts, and the ranks with the same experts would wait for it."""
    first, second = run_ranks(send_all_to_the_first_expert, [(0,), (1,)])
    assert first == [12.0, 2 * (1 + 2 + 3) * 2]
    assert second == [12.0, 0.0]


def send_all_to_the_first_expert(rank: int) -> list[float]:
    """Return the sum of the outputs, and the gradient of this rank's expert, which multiplies by a weight of 1."""
    import torch.distributed as dist

    from rlt_trainer.policy.expert_parallel import exchange_tokens

    join(rank, 2)
    weight = torch.ones(1, requires_grad=True)
    hidden = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], requires_grad=True)
    chosen = torch.zeros(3, 1, dtype=torch.long)
    shares = torch.ones(3, 1)

    def multiply(rows: torch.Tensor, numbers: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        assert not numbers.any()
        return rows * weight * weights

    assert dist.group.WORLD is not None
    outputs = exchange_tokens(hidden, chosen, shares, multiply, 1, dist.group.WORLD)
    outputs.sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert hidden.grad.tolist() == [[1.0, 1.0]] * 3
    assert weight.grad is not None
    dist.destroy_process_group()
    return [float(outputs.sum()), float(weight.grad)]
