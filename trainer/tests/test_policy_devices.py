"""What GPUs compute in ways of their own is what CPUs compute: attention of packed sequences, offload, a whole step."""

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
from rlt_trainer.policy.packed_attention import _flash, _sequence_by_sequence

LENGTHS = (5, 1, 17, 64)
KERNELS = [
    pytest.param(_sequence_by_sequence, "cpu", torch.float32, id="one by one on a CPU"),
    pytest.param(_sequence_by_sequence, "cuda", torch.float32, id="one by one on a GPU", marks=pytest.mark.gpu),
    pytest.param(_flash, "cuda", torch.bfloat16, id="FlashAttention", marks=pytest.mark.gpu),
]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
"""Of results of about 1, absolute and relative: bfloat16 has 8 bits."""


def plain_attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """By its definition, with every pair of tokens. [1, heads, n, d]."""
    sequence = torch.repeat_interleave(torch.tensor(LENGTHS))
    place = torch.arange(len(sequence))
    distance = place[:, None] - place
    visible = (sequence[:, None] == sequence) & (distance >= 0) & (distance < (window or len(place)))
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
    scores = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ value


@pytest.mark.parametrize(("kernel", "place", "dtype"), KERNELS)
@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_packed_attention_and_its_gradient_follow_the_definition(
    kernel: Any, place: str, dtype: torch.dtype, window: int | None, kv_heads: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, heads, sum(LENGTHS), 32) for heads in (4, kv_heads, kv_heads)]
    exact = [torch.randn(shape, generator=generator).to(dtype).double().requires_grad_() for shape in shapes]
    inputs = [part.detach().to(place, dtype).requires_grad_() for part in exact]
    direction = torch.randn(shapes[0], generator=generator).to(dtype)

    expected, result = plain_attention(*exact, window), kernel(*inputs, LENGTHS, None, window)
    (expected * direction.double()).sum().backward()
    (result * direction.to(place)).sum().backward()
    ours_and_theirs = [(result, expected), *((one.grad, two.grad) for one, two in zip(inputs, exact, strict=True))]
    for ours, theirs in ours_and_theirs:
        assert ours is not None
        assert theirs is not None
        assert_close(ours.cpu().double(), theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


SEQUENCES = Sequences.pad([[50, 51], [60], [70]], [[70, 71, 72], [80], [90, 91]], pad_token_id=0)


def policy_on(mesh: DeviceMesh, files: str, *, model: Model | None = None, fsdp: Fsdp | None = None) -> Actor:
    """In bfloat16 on GPUs, where packed sequences have FlashAttention, and in float32 on CPUs."""
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


def test_packed_sequences_have_the_log_probs_of_padded_ones(mesh: DeviceMesh, device: str, tiny_model: str) -> None:
    padded = policy_on(mesh, tiny_model).log_probs(SEQUENCES)
    packed = policy_on(mesh, tiny_model, model=Model(use_remove_padding=True)).log_probs(SEQUENCES)
    assert_close(packed, padded, atol=5e-2 if device == "cuda" else 1e-5, rtol=0)


def test_what_waits_in_the_cpus_memory_learns_the_same(mesh: DeviceMesh, device: str, tiny_model: str) -> None:
    """Moving a number does not change it; a GPU's sums may."""
    stay, wait = (
        policy_on(mesh, tiny_model),
        policy_on(mesh, tiny_model, fsdp=Fsdp(param_offload=True, optimizer_offload=True)),
    )
    old = stay.log_probs(SEQUENCES)[0]
    advantages = torch.tensor([[1.0], [-1.0], [0.5]]).expand(old.shape)
    batch = MiniBatch(Experience(SEQUENCES, old, advantages, ref_log_probs=old), 6, 3)
    for _ in range(5):
        one, other = stay.update(batch), wait.update(batch)
        same = pytest.approx(one.shares | {"norm": one.grad_norm}, rel=1e-3 if device == "cuda" else 0, abs=1e-6)
        assert other.shares | {"norm": other.grad_norm} == same
    assert {place(each) for each in wait.model.parameters()} == {"cpu"}
    assert {place(each) for state in wait.optimizer.state.values() for each in state.values()} == {"cpu"}
    assert {place(each) for each in stay.model.parameters()} == {device}
    assert {place(weight) for _, weight in wait.gather_weights()} == {device}


def place(tensor: Tensor) -> str:
    """The kind of device that this rank's part of a tensor is on."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).device.type
