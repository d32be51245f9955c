"""The policy on one rank: what an update does, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.training import Training
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.actor import Policy
from rlt_trainer.policy.model import load_model
from rlt_trainer.sequences import Experience, MiniBatch, Sequences

SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)
MakePolicy = Callable[..., Policy]


@pytest.fixture(scope="module")
def _process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("process-group") / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def make_policy(tiny_model: str, _process_group: None) -> MakePolicy:
    def make(*, kl_loss_coef: float = 0.0, dtype: torch.dtype = torch.float32) -> Policy:
        return Policy(
            tiny_model,
            dtype=dtype,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=Algorithm(kl_loss_coef=kl_loss_coef),
            training=Training(total_steps=1, learning_rate=1e-3),
            temperature=0.7,
        )

    return make


def batch(policy: Policy, advantage: float) -> MiniBatch:
    """On-policy: the old log-probabilities are the policy's own."""
    log_probs, _ = policy.log_probs(SEQUENCES)
    advantages = torch.tensor([[advantage], [-advantage]]).expand(log_probs.shape)
    reference = None if policy.reference is None else policy.ref_log_probs(SEQUENCES)
    experience = Experience(SEQUENCES, log_probs, advantages, ref_log_probs=reference)
    return MiniBatch(experience, total_tokens=4, total_sequences=2)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return dict(policy.full_weights())


def test_the_first_step_is_on_policy(make_policy: MakePolicy) -> None:
    policy = make_policy(kl_loss_coef=0.1)
    result = policy.update(batch(policy, 1.0))
    assert result.shares["actor/pg_clipfrac"] == 0
    assert result.shares["actor/ppo_kl"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert result.shares["actor/pg_loss"] == pytest.approx(-(3 - 1) / 4)  # three tokens at +1, one at -1
    assert result.grad_norm > 0


def test_an_update_makes_the_better_response_likelier(make_policy: MakePolicy) -> None:
    policy = make_policy()
    before, _ = policy.log_probs(SEQUENCES)
    policy.update(batch(policy, 1.0))
    after, _ = policy.log_probs(SEQUENCES)
    assert (after[0] > before[0]).all()
    assert after[1, 0] < before[1, 0]


def test_equal_rewards_without_kl_have_no_gradient(make_policy: MakePolicy) -> None:
    policy = make_policy()
    assert policy.update(batch(policy, 0.0)).grad_norm == 0


def test_the_reference_stays_where_the_stage_began(make_policy: MakePolicy) -> None:
    policy = make_policy(kl_loss_coef=0.1)
    policy.supervised_step(SEQUENCES, 4)
    policy.start_stage(1e-3)
    start = policy.ref_log_probs(SEQUENCES)
    assert_close(start, policy.log_probs(SEQUENCES)[0])
    policy.update(batch(policy, 1.0))
    assert torch.equal(policy.ref_log_probs(SEQUENCES), start)


def test_a_gradient_that_is_not_finite_changes_no_weight(make_policy: MakePolicy) -> None:
    policy = make_policy()
    before = weights(policy)
    result = policy.update(batch(policy, math.inf))
    assert result.skipped
    assert all(torch.equal(before[name], weight) for name, weight in weights(policy).items())


def test_three_of_them_in_a_row_end_the_training(make_policy: MakePolicy) -> None:
    policy = make_policy()
    good, bad = batch(policy, 1.0), batch(policy, math.inf)
    for each in (bad, bad, good, bad, bad):
        policy.update(each)
    with pytest.raises(TrainingError, match="norm of the gradient was nan in 3 optimizer steps"):
        policy.update(bad)


def test_gathered_weights_are_those_of_the_files(make_policy: MakePolicy, tiny_model: str) -> None:
    expected = load_model(tiny_model, torch.float32).state_dict()
    gathered = weights(make_policy())
    assert gathered.keys() == expected.keys()
    assert all(torch.equal(gathered[name], weight) for name, weight in expected.items())


def test_bfloat16_computes_in_it_and_keeps_float32_to_train(make_policy: MakePolicy) -> None:
    policy = make_policy(dtype=torch.bfloat16)
    policy.update(batch(policy, 1.0))
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    assert {weight.dtype for weight in weights(policy).values()} == {torch.bfloat16}
