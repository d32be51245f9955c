"""GPUs and CPUs have the same results: attention of packed sequences, offload, a full step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Fsdp, Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.packed_attention import Packing, _flash, _sequence_by_sequence

LENGTHS = (5, 1, 17, 64)
KERNELS = [
    pytest.param(_sequence_by_sequence, "cpu", torch.float32, id="by sequence on a CPU"),
    pytest.param(
        _sequence_by_sequence, "cuda", torch.float32, id="sequence by sequence on a GPU", marks=pytest.mark.gpu
    ),
    pytest.param(_flash, "cuda", torch.bfloat16, id="FlashAttention", marks=pytest.mark.gpu),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
"""Absolute and relative tolerance for results of about 1. bfloat16 has a precision of 8 bits."""


def plain_attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """Attention by its definition, over all pairs of tokens: [1, heads, n, d]."""
    sequence = torch.repeat_interleave(torch.tensor(LENGTHS))
    position = torch.arange(len(sequence))
    distance = position[:, None] - position
    visible = (sequence[:, None] == sequence) & (distance >= 0) & (distance < (window or len(position)))
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
    scores: Tensor = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ value


@pytest.mark.parametrize(("kernel", "device_type", "dtype"), KERNELS)
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_packed_attention_and_its_gradient_follow_the_definition(
    kernel: Any, device_type: str, dtype: torch.dtype, window: int | None, kv_heads: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, heads, sum(LENGTHS), 32) for heads in (4, kv_heads, kv_heads)]
    exact = [torch.randn(shape, generator=generator).to(dtype).double().requires_grad_() for shape in shapes]
    inputs = [part.detach().to(device_type, dtype).requires_grad_() for part in exact]
    direction = torch.randn(shapes[0], generator=generator).to(dtype)

    packing = Packing.of(LENGTHS, None, torch.device(device_type))
    query, key, value = exact
    expected = plain_attention(query, key, value, window)
    result = kernel(*inputs, packing, None, window)
    (expected * direction.double()).sum().backward()  # type: ignore[no-untyped-call]
    (result * direction.to(device_type)).sum().backward()
    ours_and_theirs = [(result, expected), *((one.grad, two.grad) for one, two in zip(inputs, exact, strict=True))]
    for ours, theirs in ours_and_theirs:
        assert ours is not None
        assert theirs is not None
        assert_close(ours.cpu().double(), theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


SEQUENCES = Sequences.pad([[50, 51], [60], [70]], [[70, 71, 72], [80], [90, 91]], pad_token_id=0)


def make_actor(mesh: DeviceMesh, files: str, *, model: Model | None = None, fsdp: Fsdp | None = None) -> Actor:
    """Build an actor in bfloat16 on GPUs, where packed sequences use FlashAttention, and in float32 on CPUs."""
    return Actor(
        files,
        model=model or Model(),
        dtype=torch.bfloat16 if mesh.device_type == "cuda" else torch.float32,
        mesh=mesh,
        algorithm=Algorithm(kl_loss_coef=0.1, entropy_coeff=0.01),
        training=Training(total_steps=5, learning_rate=1e-3, fsdp=fsdp),
        temperature=1.0,
        max_response_length=8,
    )


def test_packed_and_padded_log_probs_are_equal(mesh: DeviceMesh, device: str, tiny_model: str) -> None:
    padded = make_actor(mesh, tiny_model).log_probs(SEQUENCES)
    packed = make_actor(mesh, tiny_model, model=Model(use_remove_padding=True)).log_probs(SEQUENCES)
    assert_close(packed, padded, atol=5e-2 if device == "cuda" else 1e-5, rtol=0)


def test_offload_does_not_change_the_updates(mesh: DeviceMesh, device: str, tiny_model: str) -> None:
    """Offload does not change values. The order of a GPU's sums may."""
    resident = make_actor(mesh, tiny_model)
    offloaded = make_actor(mesh, tiny_model, fsdp=Fsdp(param_offload=True, optimizer_offload=True))
    old = resident.log_probs(SEQUENCES)[0]
    advantages = torch.tensor([[1.0], [-1.0], [0.5]]).expand(old.shape)
    batch = MiniBatch(Experience(SEQUENCES, old, advantages, ref_log_probs=old), 6, 3)
    for _ in range(5):
        one = resident.update(batch)
        other = offloaded.update(batch)
        same = pytest.approx(one.shares | {"norm": one.grad_norm}, rel=1e-3 if device == "cuda" else 0, abs=1e-6)
        assert other.shares | {"norm": other.grad_norm} == same
    assert {device_of(each) for each in offloaded.model.parameters()} == {"cpu"}
    assert {device_of(each) for state in offloaded.optimizers[0].state.values() for each in state.values()} == {"cpu"}
    assert {device_of(each) for each in resident.model.parameters()} == {device}
    assert {device_of(weight) for _, weight in offloaded.gather_weights()} == {device}


def device_of(tensor: Tensor) -> str:
    """Return the device type of a tensor's shard on this rank."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).device.type
