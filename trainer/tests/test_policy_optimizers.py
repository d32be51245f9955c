"""Muon, and AdamW with moments of 8 bits: updates, checkpoints, resumed runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchao.optim
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torchao.optim.subclass_8bit import OptimState8bit

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
from rlt_trainer.policy.eight_bit import BLOCK

pytestmark = pytest.mark.usefixtures("process_group")
RATE = 1e-3
WEIGHT_DECAY = 0.01


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
    """Return the names of the weights in each optimizer."""
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
    update_both(
        actor,
        plain,
        torch.optim.Muon(
            [plain[name] for name in matrices], adjust_lr_fn="match_rms_adamw", lr=RATE, weight_decay=WEIGHT_DECAY
        ),
        torch.optim.AdamW([plain[name] for name in others], fused=True, lr=RATE, weight_decay=WEIGHT_DECAY),
    )
    for name, weight in whole_weights(actor).items():
        assert torch.equal(weight, plain[name]), name


def test_adamw_with_8_bits_updates_matrices_as_torchaos_and_the_others_as_adamw(tiny_model: str) -> None:
    """torchao quantizes by the size of a tensor, so that it gets the matrices alone whose rows have whole blocks."""
    actor = make_actor(tiny_model, "adamw_8bit")
    plain = {name: nn.Parameter(weight) for name, weight in whole_weights(actor).items()}
    blocks = {name for name, weight in plain.items() if weight.ndim == 2 and weight.shape[1] % BLOCK == 0}
    assert blocks == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(2)}
    quantized = torchao.optim.AdamW8bit(
        [plain[name] for name in blocks], block_size=BLOCK, lr=RATE, weight_decay=WEIGHT_DECAY
    )
    with torch.compiler.set_stance("force_eager"):
        update_both(
            actor,
            plain,
            quantized,
            torch.optim.AdamW(
                [each for name, each in plain.items() if name not in blocks], lr=RATE, weight_decay=WEIGHT_DECAY
            ),
        )
    for name, weight in whole_weights(actor).items():
        torch.testing.assert_close(weight, plain[name].detach(), msg=name)
    states = actor.optimizers[0].state
    for name, parameter in actor.model.named_parameters():
        assert isinstance(states[parameter]["exp_avg"].to_local(), OptimState8bit) == (name in blocks)


def update_both(actor: Actor, plain: dict[str, nn.Parameter], *optimizers: torch.optim.Optimizer) -> None:
    """Run three steps of the actor's optimizers, and of `plain`'s, on the same gradients."""
    generator = torch.Generator().manual_seed(0)
    mesh = init_device_mesh("cpu", (1,))
    for _ in range(3):
        for name, parameter in actor.model.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            plain[name].grad = gradient
            parameter.grad = distribute_tensor(gradient, mesh, parameter.placements)  # type: ignore[attr-defined]
        for optimizer in (*optimizers, *actor.optimizers):
            optimizer.step()


@pytest.mark.parametrize("optimizer", ["muon", "adamw_8bit"])
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["weights", "adapters"])
def test_a_resumed_run_equals_an_unbroken_one(
    tiny_model: str, tmp_path: Path, optimizer: str, lora: Lora | None
) -> None:
    unbroken, first, second = (make_actor(tiny_model, optimizer, lora) for _ in range(3))
    learn(unbroken, range(4))
    learn(first, range(2))
    Saver(tmp_path, Checkpoint()).save(2, parts_of(first), DriverState())
    resume(tmp_path, Checkpoint(), parts_of(second))
    learn(second, range(2, 4))
    expected = whole_weights(unbroken)
    for name, weight in whole_weights(second).items():
        assert torch.equal(weight, expected[name]), name


@pytest.mark.parametrize(
    ("saved", "wanted", "missing"),
    [
        ("adamw", "muon", "momentum_buffer"),
        ("adamw", "adamw_8bit", "exp_avg_8bit"),
        ("adamw_8bit", "adamw", "exp_avg"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_rejected(
    tiny_model: str, tmp_path: Path, saved: str, wanted: str, missing: str
) -> None:
    Saver(tmp_path, Checkpoint()).save(1, parts_of(make_actor(tiny_model, saved)), DriverState())
    with pytest.raises(ValueError, match=rf"another training\.optimizer: it has no .*\.{missing}\."):
        resume(tmp_path, Checkpoint(), parts_of(make_actor(tiny_model, wanted)))
