"""The critic on one rank: its values and its updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.algorithm import Critic as CriticBlock
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import LearningRateSchedule, Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.critic import Critic

pytestmark = pytest.mark.usefixtures("process_group")
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)


def make(files: str, training: dict[str, Any] | None = None, **block: Any) -> Critic:
    return Critic(
        files,
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm(critic=CriticBlock(learning_rate=1e-3, **block)),
        training=Training(total_steps=9, lr_schedule=LearningRateSchedule(type="linear"), **(training or {})),
        max_response_length=8,
    )


def batch(critic: Critic, target: float) -> MiniBatch:
    values = critic.values(SEQUENCES)
    zeros = torch.zeros_like(values)
    return MiniBatch(Experience(SEQUENCES, zeros, zeros, values=values, returns=zeros + target), 4, 2)


def test_the_critic_learns_returns_within_the_clip(tiny_model: str) -> None:
    critic = make(tiny_model, cliprange_value=0.1)
    target = batch(critic, 1.0)
    first, *_, last = [critic.update(target) for _ in range(8)]
    assert 0.3 < first.shares["critic/vf_loss"] < 0.7  # half of (about 0 - 1) squared
    assert first.shares["critic/vf_clipfrac"] == 0
    assert last.shares["critic/vf_loss"] < first.shares["critic/vf_loss"]
    assert last.shares["critic/vpred_mean"] > first.shares["critic/vpred_mean"]
    assert first.learning_rate == last.learning_rate == 1e-3  # the schedule applies only to the policy


def test_a_value_does_not_depend_on_its_own_token(tiny_model: str) -> None:
    critic = make(tiny_model)
    other_end = Sequences.pad([[50, 51], [60]], [[70, 71, 99], [80]], pad_token_id=0)
    values = critic.values(SEQUENCES)
    assert_close(critic.values(other_end), values)  # no value depends on the last token
    assert not values[~SEQUENCES.response_attention].any()
    assert values.dtype == torch.float32


def test_the_initial_value_head_is_deterministic(tiny_model: str) -> None:
    assert torch.equal(make(tiny_model).values(SEQUENCES), make(tiny_model).values(SEQUENCES))


def test_packed_values_equal_padded_values(tiny_model: str) -> None:
    assert_close(make(tiny_model, use_remove_padding=True).values(SEQUENCES), make(tiny_model).values(SEQUENCES))


@pytest.mark.parametrize("packed", [False, True])
def test_micro_batches_of_tokens_are_the_same_values_and_updates(tiny_model: str, packed: bool) -> None:
    whole = make(tiny_model)
    split = make(tiny_model, {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 5}, use_remove_padding=packed)
    assert_close(split.values(SEQUENCES), whole.values(SEQUENCES))
    expected, found = (critic.update(batch(critic, 1.0)) for critic in (whole, split))
    assert found.shares == pytest.approx(expected.shares, rel=1e-5)
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
