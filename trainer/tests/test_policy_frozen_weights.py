"""Frozen weights, of the reference and below LoRA's adapters, are kept in the dtype of the computation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.model import Lora, Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.parts import ModelState
from rlt_trainer.checkpoint.resume import load_reference
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.lora import is_adapter
from rlt_trainer.policy.sharding import local_shards

SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)
DTYPES = [torch.float32, torch.bfloat16]


def make_actor(files: str, mesh: DeviceMesh, dtype: torch.dtype, lora: Lora | None = None) -> Actor:
    return Actor(
        files,
        model=Model(lora=lora),
        dtype=dtype,
        mesh=mesh,
        algorithm=Algorithm(kl_loss_coef=0.1),
        training=Training(total_steps=1, learning_rate=1e-2),
        temperature=1.0,
        max_response_length=8,
    )


def learn(actor: Actor) -> None:
    old, _ = actor.log_probs(SEQUENCES)
    advantages = torch.tensor([[1.0], [-1.0]]).expand(old.shape)
    actor.update(MiniBatch(Experience(SEQUENCES, old, advantages, ref_log_probs=old), 4, 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_has_the_results_of_float32_shards(
    mesh: DeviceMesh, device: str, tiny_model: str, dtype: torch.dtype
) -> None:
    """Before the first update, the policy has the same weights in float32 shards. On CPUs the results are equal."""
    actor = make_actor(tiny_model, mesh, dtype)
    assert actor.reference is not None
    assert {each.dtype for each in local_shards(actor.reference)} == {dtype}
    assert {each.dtype for each in local_shards(actor.model)} == {torch.float32}
    tolerance = 0 if device == "cpu" else 1e-5
    before = actor.ref_log_probs(SEQUENCES)
    assert_close(before, actor.log_probs(SEQUENCES)[0], atol=tolerance, rtol=0)
    learn(actor)
    assert_close(actor.ref_log_probs(SEQUENCES), before, atol=tolerance, rtol=0)
    actor.start_stage(1e-3)  # copies the policy
    assert_close(actor.ref_log_probs(SEQUENCES), actor.log_probs(SEQUENCES)[0], atol=tolerance, rtol=0)


def test_the_reference_is_loaded_from_a_float32_checkpoint(
    mesh: DeviceMesh, device: str, tiny_model: str, tmp_path: Path
) -> None:
    """After a warm-up, a resumed run reads its reference from the policy of step 0."""
    warmed_up, resumed = (make_actor(tiny_model, mesh, torch.bfloat16) for _ in range(2))
    learn(warmed_up)
    Saver(tmp_path, Checkpoint()).save(0, {"model": ModelState(warmed_up.model)}, DriverState())
    assert resumed.reference is not None
    load_reference(tmp_path / "step-0", resumed.reference)
    expected = warmed_up.log_probs(SEQUENCES)[0]
    assert_close(resumed.ref_log_probs(SEQUENCES), expected, atol=0 if device == "cpu" else 1e-5, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_adapters_are_trained_in_float32_on_frozen_weights_of_the_dtype(
    mesh: DeviceMesh, device: str, tiny_model: str, dtype: torch.dtype
) -> None:
    """The initial adapter is 0: log-probabilities and merged weights equal the model's without it."""
    full = make_actor(tiny_model, mesh, dtype)
    adapted = make_actor(tiny_model, mesh, dtype, Lora(rank=4))
    dtypes = {(is_adapter(name), each.dtype) for name, each in adapted.model.named_parameters()}
    assert dtypes == {(True, torch.float32), (False, dtype)}
    tolerance = 0 if device == "cpu" else 1e-5
    assert_close(adapted.log_probs(SEQUENCES), full.log_probs(SEQUENCES), atol=tolerance, rtol=0)
    for (name, one), (other_name, other) in zip(full.gather_weights(), adapted.gather_weights(), strict=True):
        assert name == other_name
        assert torch.equal(one, other)
    before = adapted.log_probs(SEQUENCES)[0]
    learn(adapted)
    assert not torch.equal(adapted.log_probs(SEQUENCES)[0], before)
