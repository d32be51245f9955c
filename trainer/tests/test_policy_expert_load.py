"""The balance in a mixture of experts is counted over the trained tokens, in any layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3MoeForCausalLM

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.expert_load import describe_balance
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

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


def test_the_metrics_follow_from_the_counts() -> None:
    even = torch.full((1, 4), 5.0)
    one = torch.tensor([[6.0, 0.0, 0.0, 0.0]])
    assert describe_balance(even) == {"actor/expert_load_max": 1.0, "actor/expert_load_entropy": pytest.approx(1.0)}
    assert describe_balance(one) == {"actor/expert_load_max": 4.0, "actor/expert_load_entropy": 0.0}
    both = describe_balance(torch.cat([even, one]))
    assert both == {"actor/expert_load_max": 4.0, "actor/expert_load_entropy": pytest.approx(0.5)}


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


def test_layers_with_experts_are_not_compiled(process_group: None, tmp_path: Path) -> None:
    """Their tokens are counted, replayed and exchanged by hooks that the compiler would leave out."""
    config = AutoConfig.for_model("qwen3_moe", **SIZES, mlp_only_layers=[0])
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    mesh = init_device_mesh("cpu", (1,))
    options = ModelOptions(mesh=mesh, dtype=torch.float32, compiled=True)
    model = load_sharded_model("actor", str(tmp_path), options, response_log_probs)
    compiled = [hasattr(layer.forward, "_torchdynamo_orig_callable") for layer in model.model.layers]
    assert compiled == [True, False]


@torch.no_grad()
def count_with_transformers(files: str) -> torch.Tensor:
    """Count the tokens of each expert [layers, experts] in the first two sequences."""
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    counts = torch.zeros(2, 4)
    for prompt, response in zip(PROMPTS[:2], RESPONSES[:2], strict=True):
        output = model(input_ids=torch.tensor([prompt + response]), output_router_logits=True)
        for layer, logits in enumerate(output.router_logits):
            counts[layer] += torch.bincount(logits.topk(2).indices.flatten(), minlength=4)
    return counts


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
def test_an_update_reports_the_balance_of_the_trained_tokens(
    settings: dict[str, Any], files: str, process_group: None
) -> None:
    actor = Actor(
        files,
        model=Model(**settings.get("model", {})),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training(total_steps=1, **settings.get("training", {})),
        temperature=1.0,
        max_response_length=3,
    )
    sequences = Sequences.pad(PROMPTS, RESPONSES, pad_token_id=0).clear(torch.tensor([False, False, True]))
    zeros = torch.zeros(sequences.response_mask.shape)
    shares = actor.update(MiniBatch(Experience(sequences, zeros, zeros + 1), 5, 2)).shares
    expected = describe_balance(count_with_transformers(files))
    assert {name: shares[name] for name in expected} == pytest.approx(expected)
