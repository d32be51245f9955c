"""The load-balancing loss equals transformers' for each sequence, in any layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import join, run_ranks
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoConfig, AutoModelForCausalLM, DeepseekV3Config, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.families import validate_router_loss

PROMPTS = [[1, 2, 3], [4, 5], [6, 7]]
RESPONSES = [[8, 9], [10, 11, 12], [13]]
SIZES: dict[str, int] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 16,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixture")
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(AutoConfig.for_model("qwen3_moe", **SIZES))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder)
    return str(folder)


def update(
    files: str, coefficient: float, settings: dict[str, Any] | None = None, *, rows: slice = slice(None)
) -> UpdateResult:
    """Take one optimizer step without advantages on `rows` of each rank. The third sequence is not trained on."""
    settings = settings or {}
    actor = Actor(
        files,
        model=Model(**settings.get("model", {})),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
        algorithm=Algorithm(kl_loss_coef=0, router_aux_loss_coef=coefficient),
        training=Training(total_steps=1, **settings.get("training", {})),
        temperature=1.0,
        max_response_length=3,
    )
    sequences = Sequences.pad(PROMPTS, RESPONSES, pad_token_id=0).clear(torch.tensor([False, False, True])).rows(rows)
    zeros = torch.zeros(sequences.response_mask.shape)
    return actor.update(MiniBatch(Experience(sequences, zeros, zeros), 5, 2))


def compute_with_transformers(files: str) -> tuple[float, float]:
    """Return the loss of the first two sequences, the mean over sequences and layers, and the norm of its gradient."""
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    losses = []
    for prompt, response in zip(PROMPTS[:2], RESPONSES[:2], strict=True):
        output = model(input_ids=torch.tensor([prompt + response]), output_router_logits=True)
        losses += [torch.as_tensor(load_balancing_loss_func((logits,), 4, 2)) for logits in output.router_logits]
    loss = torch.stack(losses).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return float(loss.detach()), float(torch.nn.utils.get_total_norm(gradients))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"training": {"ppo_micro_batch_size_per_device": 1}},
        {"model": {"use_remove_padding": True}},
        {"model": {"enable_gradient_checkpointing": True}},
    ],
    ids=str,
)
def test_loss_and_gradient_equal_transformers(settings: dict[str, Any], files: str, process_group: None) -> None:
    result = update(files, 1.0, settings)
    loss, norm = compute_with_transformers(files)
    assert result.shares["actor/router_aux_loss"] == pytest.approx(loss, rel=1e-5)
    assert result.grad_norm == pytest.approx(norm, rel=1e-4)


def test_the_coefficient_scales_the_gradient(files: str, process_group: None) -> None:
    one, third, none = (update(files, coefficient) for coefficient in (1.0, 0.3, 0.0))
    assert third.grad_norm == pytest.approx(0.3 * one.grad_norm, rel=1e-4)
    assert none.grad_norm == 0
    assert "actor/router_aux_loss" not in none.shares


@pytest.mark.slow
def test_two_ranks_have_the_numbers_of_one(files: str, process_group: None) -> None:
    alone = update(files, 1.0)
    both = run_ranks(one_rank, [(files, rank) for rank in range(2)])
    for name in ("actor/router_aux_loss", "actor/expert_load_max", "actor/expert_load_entropy"):
        assert sum(shares[name] for shares, _ in both) == pytest.approx(alone.shares[name], rel=1e-5), name
    assert [norm for _, norm in both] == pytest.approx([alone.grad_norm] * 2, rel=1e-5)


def one_rank(files: str, rank: int) -> tuple[dict[str, float], float]:
    """Take the step with one of the trained sequences on each rank."""
    join(rank, 2)
    result = update(files, 1.0, rows=slice(rank, rank + 1))
    dist.destroy_process_group()
    return result.shares, result.grad_norm


def test_a_family_without_auxiliary_loss_is_rejected() -> None:
    validate_router_loss(Qwen3MoeConfig(), 0.001)
    with pytest.raises(ValueError, match=r"algorithm\.routerAuxLossCoef: 0\.001: models of type deepseek_v3 have no"):
        validate_router_loss(DeepseekV3Config(), 0.001)
