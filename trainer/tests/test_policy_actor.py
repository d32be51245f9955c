"""The actor on one rank: what an update changes, and what it does not."""

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
def make_actor(tiny_model: str) -> MakeActor:
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


def batch(actor: Actor, advantage: float) -> MiniBatch:
    """Build an on-policy batch: the old log-probabilities are the current ones."""
    log_probs, _ = actor.log_probs(SEQUENCES)
    advantages = torch.tensor([[advantage], [-advantage]]).expand(log_probs.shape)
    reference = None if actor.reference is None else actor.ref_log_probs(SEQUENCES)
    experience = Experience(SEQUENCES, log_probs, advantages, ref_log_probs=reference)
    return MiniBatch(experience, total_tokens=4, total_sequences=2)


def weights(actor: Actor) -> dict[str, torch.Tensor]:
    return dict(actor.gather_weights())


def test_only_a_term_that_needs_the_reference_loads_it(make_actor: MakeActor) -> None:
    assert Algorithm().kl_loss_coef == 0.0
    assert make_actor().reference is None
    assert make_actor(kl_loss_coef=0.1).reference is not None
    assert make_actor(kl_in_reward={}).reference is not None


def test_the_first_step_is_on_policy(make_actor: MakeActor) -> None:
    actor = make_actor(kl_loss_coef=0.1)
    result = actor.update(batch(actor, 1.0))
    assert result.shares["actor/pg_clipfrac"] == 0
    assert result.shares["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 4)  # three tokens at +1, one at -1
    assert result.grad_norm > 0


def test_an_update_prefers_the_better_response(make_actor: MakeActor) -> None:
    actor = make_actor()
    before, _ = actor.log_probs(SEQUENCES)
    actor.update(batch(actor, 1.0))
    after, _ = actor.log_probs(SEQUENCES)
    assert (after[0] > before[0]).all()
    assert after[1, 0] < before[1, 0]


def test_equal_rewards_without_kl_have_no_gradient(make_actor: MakeActor) -> None:
    actor = make_actor()
    assert actor.update(batch(actor, 0.0)).grad_norm == 0


def test_the_reference_is_the_policy_at_the_start_of_the_stage(make_actor: MakeActor) -> None:
    actor = make_actor(kl_loss_coef=0.1)
    actor.supervised_step(SEQUENCES, 4)
    actor.start_stage(1e-3)
    start = actor.ref_log_probs(SEQUENCES)
    assert_close(start, actor.log_probs(SEQUENCES)[0])
    actor.update(batch(actor, 1.0))
    assert torch.equal(actor.ref_log_probs(SEQUENCES), start)


def test_a_non_finite_gradient_changes_no_weight(make_actor: MakeActor) -> None:
    actor = make_actor()
    before = weights(actor)
    result = actor.update(batch(actor, math.inf))
    assert result.skipped
    assert all(torch.equal(before[name], weight) for name, weight in weights(actor).items())


def test_three_non_finite_gradients_in_a_row_end_the_training(make_actor: MakeActor) -> None:
    actor = make_actor()
    good = batch(actor, 1.0)
    bad = batch(actor, math.inf)
    for each in (bad, bad, good, bad, bad):
        actor.update(each)
    with pytest.raises(TrainingError, match="norm of the gradient was nan in 3 optimizer steps"):
        actor.update(bad)


def test_gathered_weights_equal_the_files(make_actor: MakeActor, tiny_model: str) -> None:
    expected = load_model(tiny_model, torch.float32).state_dict()
    gathered = weights(make_actor())
    assert gathered.keys() == expected.keys()
    assert all(torch.equal(gathered[name], weight) for name, weight in expected.items())


def test_bfloat16_computes_in_bfloat16_and_trains_float32_weights(make_actor: MakeActor) -> None:
    actor = make_actor(dtype=torch.bfloat16)
    actor.update(batch(actor, 1.0))
    assert {parameter.dtype for parameter in actor.model.parameters()} == {torch.float32}
    assert {weight.dtype for weight in weights(actor).values()} == {torch.bfloat16}


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
def test_every_loss_prefers_the_better_response(make_actor: MakeActor, algorithm: dict[str, Any]) -> None:
    actor = make_actor(**algorithm)
    before, _ = actor.log_probs(SEQUENCES)
    actor.update(batch(actor, 1.0))
    after, _ = actor.log_probs(SEQUENCES)
    assert (after[0] > before[0]).all()
    assert after[1, 0] < before[1, 0]


def test_seq_mean_token_sum_norm_divides_by_the_maximum_length(make_actor: MakeActor) -> None:
    actor = make_actor(loss_agg_mode="seq-mean-token-sum-norm")
    result = actor.update(batch(actor, 1.0))
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 2 / 8)  # two responses, of up to 8 tokens


def test_the_entropy_bonus_increases_the_entropy(make_actor: MakeActor) -> None:
    actor = make_actor(entropy_coeff=1.0)
    results = [actor.update(batch(actor, 0.0)) for _ in range(5)]
    assert results[-1].shares["actor/entropy_loss"] > results[0].shares["actor/entropy_loss"]


def test_weights_of_the_rollout_correction_scale_the_loss(make_actor: MakeActor) -> None:
    actor = make_actor()
    whole = batch(actor, 1.0)
    halved = replace(whole.experience, weights=torch.full_like(whole.experience.advantages, 0.5))
    result = actor.update(replace(whole, experience=halved))
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 4 / 2)


def test_a_user_defined_loss_is_used(make_actor: MakeActor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user_loss.py").write_text(
        "from rlt_trainer.algorithms.losses import TokenLoss\n"
        "def reinforce(inputs):\n"
        "    return TokenLoss(-inputs.advantages * inputs.log_probs, {'actor/custom': inputs.advantages})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    actor = make_actor(policy_loss_function={"name": "user_loss:reinforce"})
    result = actor.update(batch(actor, 1.0))
    assert result.shares["actor/custom"] == pytest.approx((3 - 1) / 4)
    assert result.grad_norm > 0


def test_the_learning_rate_follows_the_schedule(make_actor: MakeActor) -> None:
    actor = make_actor(training={"lr_schedule": {"type": "linear", "warmup_steps": 2}})
    rates = []
    for step in (1, 2, 6):
        actor.set_step(step)
        rates.append(actor.update(batch(actor, 1.0)).learning_rate)
    assert rates == pytest.approx([0.5e-3, 1e-3, 5 / 9 * 1e-3])


def test_micro_batches_of_any_size_return_rows_in_order(make_actor: MakeActor) -> None:
    rows = Sequences.pad(
        [[50 + row] for row in range(5)], [[70] * (1 + 3 * row % 4) for row in range(5)], pad_token_id=0
    )
    whole, _ = make_actor().log_probs(rows)
    for training in (
        {"log_prob_micro_batch_size_per_device": 2},
        {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 11},
    ):
        assert_close(make_actor(training=training).log_probs(rows)[0], whole)
