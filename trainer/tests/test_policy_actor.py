"""The policy on one rank: what an update does, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.model import load_model

pytestmark = pytest.mark.usefixtures("process_group")
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)
MakeActor = Callable[..., Actor]


@pytest.fixture
def make_policy(tiny_model: str) -> MakeActor:
    def make(*, dtype: torch.dtype = torch.float32, training: dict[str, Any] | None = None, **algorithm: Any) -> Actor:
        return Actor(
            tiny_model,
            model=Model(),
            dtype=dtype,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=Algorithm.model_validate({"kl_loss_coef": 0.0, **algorithm}),
            training=Training.model_validate({"total_steps": 10, "learning_rate": 1e-3, **(training or {})}),
            temperature=0.7,
            max_response_length=8,
        )

    return make


def batch(policy: Actor, advantage: float) -> MiniBatch:
    """On-policy: the old log-probabilities are the policy's own."""
    log_probs, _ = policy.log_probs(SEQUENCES)
    advantages = torch.tensor([[advantage], [-advantage]]).expand(log_probs.shape)
    reference = None if policy.reference is None else policy.ref_log_probs(SEQUENCES)
    experience = Experience(SEQUENCES, log_probs, advantages, ref_log_probs=reference)
    return MiniBatch(experience, total_tokens=4, total_sequences=2)


def weights(policy: Actor) -> dict[str, torch.Tensor]:
    return dict(policy.gather_weights())


def test_the_first_step_is_on_policy(make_policy: MakeActor) -> None:
    policy = make_policy(kl_loss_coef=0.1)
    result = policy.update(batch(policy, 1.0))
    assert result.shares["actor/pg_clipfrac"] == 0
    assert result.shares["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 4)  # three tokens at +1, one at -1
    assert result.grad_norm > 0


def test_an_update_makes_the_better_response_likelier(make_policy: MakeActor) -> None:
    policy = make_policy()
    before, _ = policy.log_probs(SEQUENCES)
    policy.update(batch(policy, 1.0))
    after, _ = policy.log_probs(SEQUENCES)
    assert (after[0] > before[0]).all()
    assert after[1, 0] < before[1, 0]


def test_equal_rewards_without_kl_have_no_gradient(make_policy: MakeActor) -> None:
    policy = make_policy()
    assert policy.update(batch(policy, 0.0)).grad_norm == 0


def test_the_reference_stays_where_the_stage_began(make_policy: MakeActor) -> None:
    policy = make_policy(kl_loss_coef=0.1)
    policy.supervised_step(SEQUENCES, 4)
    policy.start_stage(1e-3)
    start = policy.ref_log_probs(SEQUENCES)
    assert_close(start, policy.log_probs(SEQUENCES)[0])
    policy.update(batch(policy, 1.0))
    assert torch.equal(policy.ref_log_probs(SEQUENCES), start)


def test_a_gradient_that_is_not_finite_changes_no_weight(make_policy: MakeActor) -> None:
    policy = make_policy()
    before = weights(policy)
    result = policy.update(batch(policy, math.inf))
    assert result.skipped
    assert all(torch.equal(before[name], weight) for name, weight in weights(policy).items())


def test_three_of_them_in_a_row_end_the_training(make_policy: MakeActor) -> None:
    policy = make_policy()
    good, bad = batch(policy, 1.0), batch(policy, math.inf)
    for each in (bad, bad, good, bad, bad):
        policy.update(each)
    with pytest.raises(TrainingError, match="norm of the gradient was nan in 3 optimizer steps"):
        policy.update(bad)


def test_gathered_weights_are_those_of_the_files(make_policy: MakeActor, tiny_model: str) -> None:
    expected = load_model(tiny_model, torch.float32).state_dict()
    gathered = weights(make_policy())
    assert gathered.keys() == expected.keys()
    assert all(torch.equal(gathered[name], weight) for name, weight in expected.items())


def test_bfloat16_computes_in_it_and_keeps_float32_to_train(make_policy: MakeActor) -> None:
    policy = make_policy(dtype=torch.bfloat16)
    policy.update(batch(policy, 1.0))
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    assert {weight.dtype for weight in weights(policy).values()} == {torch.bfloat16}


LOSSES: list[dict[str, Any]] = [
    {"policy_loss": "gspo", "loss_agg_mode": "seq-mean-token-mean"},
    {"policy_loss": "cispo"},
    {"policy_loss": "sapo"},
    {"clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 3.0},
    {"loss_agg_mode": "seq-mean-token-sum-norm"},
    {"kl_loss_coef": 0.1, "kl_loss_type": "mse"},
    {"entropy_coeff": 0.1},
]


@pytest.mark.parametrize("algorithm", LOSSES, ids=str)
def test_every_loss_makes_the_better_response_likelier(make_policy: MakeActor, algorithm: dict[str, Any]) -> None:
    policy = make_policy(**algorithm)
    before, _ = policy.log_probs(SEQUENCES)
    policy.update(batch(policy, 1.0))
    after, _ = policy.log_probs(SEQUENCES)
    assert (after[0] > before[0]).all()
    assert after[1, 0] < before[1, 0]


def test_the_norm_of_seq_mean_token_sum_norm_is_the_longest_response(make_policy: MakeActor) -> None:
    policy = make_policy(loss_agg_mode="seq-mean-token-sum-norm")
    result = policy.update(batch(policy, 1.0))
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 2 / 8)  # two responses, of up to 8 tokens


def test_the_entropy_bonus_makes_the_policy_less_sure(make_policy: MakeActor) -> None:
    policy = make_policy(entropy_coeff=1.0)
    results = [policy.update(batch(policy, 0.0)) for _ in range(5)]
    assert results[-1].shares["actor/entropy_loss"] > results[0].shares["actor/entropy_loss"]


def test_weights_of_the_rollout_correction_scale_the_loss(make_policy: MakeActor) -> None:
    policy = make_policy()
    whole = batch(policy, 1.0)
    halved = replace(whole.experience, weights=torch.full_like(whole.experience.advantages, 0.5))
    result = policy.update(replace(whole, experience=halved))
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 4 / 2)


def test_a_loss_of_the_users_own(make_policy: MakeActor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_loss.py").write_text(
        "from rlt_trainer.algorithms.losses import TokenLoss\n"
        "def reinforce(inputs):\n"
        "    return TokenLoss(-inputs.advantages * inputs.log_probs, {'actor/own': inputs.advantages})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    policy = make_policy(policy_loss_function={"name": "own_loss:reinforce"})
    result = policy.update(batch(policy, 1.0))
    assert result.shares["actor/own"] == pytest.approx((3 - 1) / 4)
    assert result.grad_norm > 0


def test_the_learning_rate_is_that_of_the_step(make_policy: MakeActor) -> None:
    policy = make_policy(training={"lr_schedule": {"type": "linear", "warmup_steps": 2}})
    rates = []
    for step in (1, 2, 6):
        policy.set_step(step)
        rates.append(policy.update(batch(policy, 1.0)).learning_rate)
    assert rates == pytest.approx([0.5e-3, 1e-3, 5 / 9 * 1e-3])


def test_passes_of_any_size_give_rows_back_in_order(make_policy: MakeActor) -> None:
    rows = Sequences.pad(
        [[50 + row] for row in range(5)], [[70] * (1 + 3 * row % 4) for row in range(5)], pad_token_id=0
    )
    whole, _ = make_policy().log_probs(rows)
    for training in (
        {"log_prob_micro_batch_size_per_device": 2},
        {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 11},
    ):
        assert_close(make_policy(training=training).log_probs(rows)[0], whole)
