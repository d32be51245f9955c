"""Offload: what moves, and how often. tests/test_policy_devices.py compares results on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Fsdp, Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
from rlt_trainer.checkpoint.resume import load_checkpoint
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.policy import offload
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.offload import Offload

SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71], [80]], pad_token_id=0)
OFFLOADS = [Fsdp(param_offload=True), Fsdp(optimizer_offload=True), Fsdp(param_offload=True, optimizer_offload=True)]


def make_actor(files: str, mesh: DeviceMesh, fsdp: Fsdp) -> Actor:
    return Actor(
        files,
        model=Model(),
        dtype=torch.float32,
        mesh=mesh,
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training(total_steps=5, learning_rate=1e-3, fsdp=fsdp),
        temperature=1.0,
        max_response_length=8,
    )


def make_batch(actor: Actor) -> MiniBatch:
    old, _ = actor.log_probs(SEQUENCES)
    return MiniBatch(Experience(SEQUENCES, old, torch.tensor([[1.0], [-1.0]]).expand(old.shape)), 3, 2)


def test_all_mini_batches_of_a_step_move_weights_and_moments_once(
    one_rank: None, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    actor = make_actor(tiny_model, mesh, Fsdp(param_offload=True, optimizer_offload=True))
    batch = make_batch(actor)
    actor.update(batch)  # creates the moments
    moves: list[str] = []
    move = offload._move

    def count(tensor: Tensor, device: torch.device) -> Tensor:
        moves.append(device.type)
        return move(tensor, device)

    monkeypatch.setattr(offload, "_move", count)
    actor.update(batch)
    once = len(moves)
    with actor.on_device():
        for _ in range(3):
            actor.update(batch)
    assert len(moves) == 2 * once > 0


def test_weights_are_offloaded_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def record(tensor: Tensor, device: torch.device) -> Tensor:
        devices.append(device.type)
        return tensor

    def fail() -> None:
        with Offload(torch.device("meta"), weights=True).on_device(torch.nn.Linear(1, 1, bias=False)):
            devices.append("failure")
            raise ZeroDivisionError

    monkeypatch.setattr(offload, "_move", record)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert devices == ["meta", "failure", "cpu"]


def test_moments_of_a_checkpoint_follow_weights_to_the_device() -> None:
    """A checkpoint that is loaded while weights are offloaded leaves its moments on the CPU. `meta` is the device."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    meta = torch.device("meta")
    with Offload(meta).on_device(model, optimizer):
        assert {each.device for state in optimizer.state.values() for each in state.values()} == {meta}


@pytest.mark.parametrize("fsdp", OFFLOADS)
def test_an_offloaded_run_continues_after_a_resume(
    mesh: DeviceMesh, device: str, tiny_model: str, tmp_path: Path, fsdp: Fsdp
) -> None:
    """The update after the resume equals the saved run's. GPUs add up in another order."""
    first, second = (make_actor(tiny_model, mesh, fsdp) for _ in range(2))
    batch = make_batch(first)
    first.update(batch)
    Saver(tmp_path, Checkpoint()).save(1, parts(first), DriverState())
    load_checkpoint(tmp_path / "step-1", parts(second))
    expected = first.update(batch)
    result = second.update(batch)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-3 if device == "cuda" else 0)
    home = "cpu" if fsdp.param_offload else device
    assert {local(each).device.type for each in second.model.parameters()} == {home}


@pytest.mark.gpu
def test_offloaded_tensors_are_in_pinned_memory(tiny_model: str, mesh: DeviceMesh, device: str) -> None:
    if device == "cpu":
        pytest.skip("memory is pinned for GPUs")
    actor = make_actor(tiny_model, mesh, Fsdp(param_offload=True, optimizer_offload=True))
    actor.update(make_batch(actor))
    states = [each for state in actor.optimizers[0].state.values() for each in state.values()]
    assert all(local(each).is_pinned() for each in [*actor.model.parameters(), *states])


def parts(actor: Actor) -> Parts:
    return {"model": ModelState(actor.model), "optimizer": OptimizerState(actor.model, actor.optimizers)}


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
