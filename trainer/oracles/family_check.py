"""Compares the trainer's log-probabilities and values of a model family with transformers'."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tiny_families import VOCABULARY, build_tiny_config
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.critic import response_values
from rlt_trainer.policy.families import UNSUPPORTED, find_packing_obstacle, has_value_head
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.sharded_model import Kind, ModelOptions, load_sharded_model

TEMPERATURE = 0.7
TOLERANCE = 1e-5
LENGTHS = ((3, 6), (5, 2), (2, 9))
"""Tokens of prompt and response in each sequence."""
AUTO_CLASSES: dict[Kind, Any] = {"actor": AutoModelForCausalLM, "critic": AutoModelForTokenClassification}


@dataclass(frozen=True)
class Support:
    """How one family can be used: True, or the reason why not."""

    padded: bool | str
    packed: bool | str
    critic: bool | str
    """Padded, and packed if sequences of the family can be packed."""


def check_family(model_type: str, folder: Path, mesh: DeviceMesh) -> Support:
    """Write a tiny model of the family to `folder`, and compare in each way that families.py does not reject.

    Raises AssertionError with the difference if a result is wrong, or if a later token changes an earlier one.
    """
    if reason := UNSUPPORTED.get(model_type):
        return Support(reason, reason, reason)
    write_tiny_model(model_type, folder)
    config = AutoConfig.from_pretrained(folder)
    obstacle = find_packing_obstacle(config)
    layouts = (False,) if obstacle else (False, True)
    for packed in layouts:
        assert_equal(model_type, "actor", folder, mesh, packed=packed)
        if has_value_head(config):
            assert_equal(model_type, "critic", folder, mesh, packed=packed)
    return Support(True, obstacle or True, has_value_head(config) or "no value head")


def write_tiny_model(model_type: str, folder: Path) -> None:
    """Save a model with random weights, none of which is 0 or 1 as after transformers' initialization."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(build_tiny_config(model_type), dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)


def assert_equal(model_type: str, kind: Kind, folder: Path, mesh: DeviceMesh, *, packed: bool) -> None:
    """Assert that the sharded model gives each response token the value that transformers gives it."""
    actual, head = compute_sharded(kind, folder, mesh, packed=packed)
    expected = compute_one_by_one(kind, folder, head)
    difference = max(float((ours - theirs).abs().max()) for ours, theirs in zip(actual, expected, strict=True))
    layout = "packed" if packed else "padded"
    assert difference <= TOLERANCE, f"{model_type}: {kind} {layout} differs from transformers by {difference:.1e}"


@torch.no_grad()
def compute_sharded(
    kind: Kind, folder: Path, mesh: DeviceMesh, *, packed: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Return the values of each response's tokens with the trainer's loading and forward, and the critic's head."""
    forward = response_log_probs if kind == "actor" else response_values
    options = ModelOptions(mesh=mesh, dtype=torch.float32, packed=packed)
    model = load_sharded_model(kind, str(folder), options, forward)
    prompts, responses = sample_tokens()
    sequences = Sequences.pad(prompts, responses, pad_token_id=0)
    if kind == "actor":
        values, _ = model(sequences, temperature=TEMPERATURE, packed=packed)
        head = {}
    else:
        values = model(sequences, packed=packed)
        head = {name: weight.full_tensor() for name, weight in model.get_submodule("score").state_dict().items()}
    return [row[: len(response)] for row, response in zip(values, responses, strict=True)], head


@torch.no_grad()
def compute_one_by_one(kind: Kind, folder: Path, head: dict[str, Tensor]) -> list[Tensor]:
    """Return the same values with transformers' loading and forward, one sequence at a time without padding."""
    labels = {"num_labels": 1} if kind == "critic" else {}
    model = AUTO_CLASSES[kind].from_pretrained(folder, dtype=torch.float32, **labels).eval()
    if kind == "critic":
        model.score.load_state_dict(head)
    values = []
    for prompt, response in zip(*sample_tokens(), strict=True):
        tokens = torch.tensor([prompt + response])
        before = slice(len(prompt) - 1, -1)
        output = model(input_ids=tokens, use_cache=False).logits[0, before].float()
        first = model(input_ids=tokens[:, : len(prompt) + 1], use_cache=False).logits[0, len(prompt) - 1].float()
        assert torch.allclose(first, output[0], atol=1e-4), "later tokens change an earlier one"
        if kind == "actor":
            log_probs = (output / TEMPERATURE).log_softmax(-1)
            values.append(log_probs.gather(-1, tokens[0, len(prompt) :, None]).squeeze(-1))
        else:
            values.append(output.squeeze(-1))
    return values


def sample_tokens() -> tuple[list[list[int]], list[list[int]]]:
    """Return prompts and responses of the same random tokens in each call."""
    generator = torch.Generator().manual_seed(1)

    def sample(length: int) -> list[int]:
        tokens: list[int] = torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
        return tokens

    return [sample(prompt) for prompt, _ in LENGTHS], [sample(response) for _, response in LENGTHS]
