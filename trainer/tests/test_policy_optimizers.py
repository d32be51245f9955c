"""Muon for the matrices of the layers, AdamW for the other weights: updates, checkpoints, resumed runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.model import Lora, Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
from rlt_trainer.checkpoint.resume import resume
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.policy.actor import Actor

pytestmark = pytest.mark.usefixtures("process_group")
RATE = 1e-3


def make_actor(files: str, optimizer: str = "muon", lora: Lora | None = None) -> Actor:
    return Actor(
        files,
        model=Model(lora=lora),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training.model_validate({"totalSteps": 4, "learningRate": RATE, "optimizer": optimizer}),
        temperature=1.0,
        max_response_length=8,
    )


def whole_weights(actor: Actor) -> dict[str, Tensor]:
    return {name: each.full_tensor().detach().clone() for name, each in actor.model.named_parameters()}  # type: ignore[attr-defined]


def names_of(actor: Actor) -> list[set[str]]:
    """Return the names of the weights of each optimizer."""
    names = {id(parameter): name for name, parameter in actor.model.named_parameters()}
    return [{names[id(each)] for each in one.param_groups[0]["params"]} for one in actor.optimizers]


def learn(actor: Actor, steps: range) -> None:
    for step in steps:
        tokens = torch.randint(0, 256, (2, 6), generator=torch.Generator().manual_seed(step)).tolist()
        actor.supervised_step(Sequences.pad([[65, 66]] * 2, tokens, pad_token_id=0), 12)


def parts_of(actor: Actor) -> Parts:
    return {"model": ModelState(actor.model), "optimizer": OptimizerState(actor.model, actor.optimizers)}


def test_muon_has_the_matrices_of_the_layers(tiny_model: str) -> None:
    matrices, others = names_of(make_actor(tiny_model))
    assert all(".layers." in name and name.endswith("_proj.weight") for name in matrices)
    assert {name for name in others if ".layers." not in name} >= {"model.embed_tokens.weight", "model.norm.weight"}
    assert all(name.endswith("norm.weight") for name in others if ".layers." in name)


def test_muon_updates_the_matrices_of_the_layers_as_torchs_muon(tiny_model: str) -> None:
    """On one rank, three steps on the same gradients are equal bit for bit."""
    actor = make_actor(tiny_model)
    matrices, others = names_of(actor)
    plain = {name: nn.Parameter(weight) for name, weight in whole_weights(actor).items()}
    options = {"lr": RATE, "weight_decay": 0.01}
    expected = [
        torch.optim.Muon([plain[name] for name in matrices], adjust_lr_fn="match_rms_adamw", **options),
        torch.optim.AdamW([plain[name] for name in others], fused=True, **options),
    ]
    generator = torch.Generator().manual_seed(0)
    mesh = init_device_mesh("cpu", (1,))
    for _ in range(3):
        for name, parameter in actor.model.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            plain[name].grad = gradient
            parameter.grad = distribute_tensor(gradient, mesh, parameter.placements)  # type: ignore[attr-defined]
        for optimizer in (*expected, *actor.optimizers):
            optimizer.step()
    for name, weight in whole_weights(actor).items():
        assert torch.equal(weight, plain[name]), name


@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["weights", "adapters"])
def test_a_resumed_run_equals_an_unbroken_one(tiny_model: str, tmp_path: Path, lora: Lora | None) -> None:
    unbroken, first, second = (make_actor(tiny_model, lora=lora) for _ in range(3))
    learn(unbroken, range(4))
    learn(first, range(2))
    Saver(tmp_path, Checkpoint()).save(2, parts_of(first), DriverState())
    resume(tmp_path, Checkpoint(), parts_of(second))
    learn(second, range(2, 4))
    expected = whole_weights(unbroken)
    for name, weight in whole_weights(second).items():
        assert torch.equal(weight, expected[name]), name


def test_a_checkpoint_of_another_optimizer_is_rejected(tiny_model: str, tmp_path: Path) -> None:
    Saver(tmp_path, Checkpoint()).save(1, parts_of(make_actor(tiny_model, "adamw")), DriverState())
    with pytest.raises(ValueError, match=r"another training\.optimizer: it has no .*momentum_buffer"):
        resume(tmp_path, Checkpoint(), parts_of(make_actor(tiny_model)))
