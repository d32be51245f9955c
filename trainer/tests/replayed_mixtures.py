"""Actors of a tiny mixture of experts, and routes that their routers would not choose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from trained_families import FAMILIES, Family, write_model
from transformers import AutoModelForCausalLM

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.mesh import create_mesh
from rlt_trainer.policy.router_replay import RouterReplay

MIXTURES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(FAMILIES[name] for name in ("DeepSeek-V3", "GLM-4 MoE", "Qwen3-MoE", "Qwen3-Next")),
        Family("qwen3_5_moe_text", "Qwen/Qwen3.5-35B-A3B", FAMILIES["Qwen3-Next"].values),
    )
}
"""model_type -> a tiny model for each family in EXPERT_PARALLEL."""
PROMPTS = [[51, 52, 53], [54, 55], [56, 57, 58, 59], [60]]
RESPONSES = [[61, 62], [63, 64, 65], [66], [67, 68, 69]]
SEQUENCES = Sequences.pad(PROMPTS, RESPONSES, pad_token_id=0)
ADVANTAGES = torch.tensor([[1.0], [-1.0], [0.5], [-0.5]]).expand(SEQUENCES.responses.shape)
NOISE = 0.02
"""Standard deviation of the change in the routers' weights, about as large as they are."""


def write_pair(family: Family, folder: Path) -> tuple[str, str]:
    """Save a model, and the same with changed routers. Return their folders."""
    files = folder / "model"
    changed = folder / "changed"
    write_model(family, files)
    write_model(family, changed)
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    change_routers(model)
    model.save_pretrained(changed)
    return str(files), str(changed)


@torch.no_grad()
def change_routers(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if name.endswith("mlp.gate.weight"):
            weight.add_(torch.randn(weight.shape, generator=generator).to(weight), alpha=NOISE)


@torch.no_grad()
def record(files: str) -> Sequences:
    """Return SEQUENCES with the routes of the model in `files` for all tokens but the last, one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    replay = RouterReplay(model)
    rows = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        tokens = torch.tensor([prompt + response[:-1]])
        rows.append(replay.record(partial(model, input_ids=tokens))[1].numpy())
    return SEQUENCES.with_routes(rows)


def build_actor(files: str, mode: str, settings: dict[str, Any] | None = None) -> Actor:
    """settings: fields of `model`, `training` and `algorithm`."""
    settings = settings or {}
    training = Training(total_steps=1, learning_rate=1e-3, **settings.get("training", {}))
    return Actor(
        files,
        model=Model(**settings.get("model", {})),
        dtype=torch.float32,
        mesh=create_mesh("cpu", training, dist.get_world_size()),
        algorithm=Algorithm.model_validate({"routerReplay": mode, **settings.get("algorithm", {})}),
        training=training,
        temperature=1.0,
        max_response_length=3,
    )


def build_batch(sequences: Sequences, old_log_probs: torch.Tensor, rows: slice = slice(None)) -> MiniBatch:
    """Return these rows of SEQUENCES as a mini-batch."""
    experience = Experience(sequences, old_log_probs, ADVANTAGES).rows(rows)
    return MiniBatch(experience, int(SEQUENCES.response_mask.sum()), len(SEQUENCES))
