"""policyLoss clip_cov and kl_cov: which tokens they select, and that no split of the batch changes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_top_entropy import SPLITS, Json, Workers, build
from torch.testing import assert_close

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.covariance import Choice, choose_between, choose_highest, select_by_covariance
from rlt_trainer.batches.sequences import Experience, split_mini_batches
from rlt_trainer.driver.experience import TrainingBatch

pytestmark = pytest.mark.usefixtures("process_group")
MakeConfig = Callable[..., TrainingConfig]
CLIP: Json = {"policyLoss": "clip_cov", "clipCovRatio": 0.2, "clipCovLb": -0.01, "clipCovUb": 10.0}
KL: Json = {"policyLoss": "kl_cov", "klCovRatio": 0.2}


@pytest.fixture
def config(make_config: MakeConfig) -> MakeConfig:
    def make(algorithm: Json, *, model: Json | None = None, rollout: Json | None = None, **training: Any) -> Any:
        sizes = {"trainBatchSize": 4, "ppoMiniBatchSize": 4, "ppoMicroBatchSizePerDevice": 8}
        return make_config(
            model=model or {},
            algorithm=algorithm,
            training={**sizes, **training},
            rollout={"responsesPerPrompt": 2, "temperature": 0.7, **(rollout or {})},
        )

    return make


def select(choose: Choice, share: float, groups: list[int], mask: list[list[int]]) -> list[list[int]]:
    """Of tokens whose advantages and log-probabilities are both 0 to 3 in each row."""
    values = torch.arange(4.0).expand(len(mask), 4)
    selected = select_by_covariance(values, values, torch.tensor(mask).bool(), torch.tensor(groups), share, choose)
    return selected.int().tolist()


def test_the_highest_covariances_of_each_mini_batch_are_selected() -> None:
    mask = [[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 0]]
    # (x - 1.5)^2 is 2.25 at both ends, (x - 1)^2 is 1
    assert select(choose_highest, 0.5, [0, 1, 2], mask) == [[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert select(choose_highest, 0.001, [0, 0, 0], mask) == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]


def test_tokens_outside_of_the_mask_have_no_effect() -> None:
    advantages = torch.tensor([[1.0, float("nan"), 3.0]])
    log_probs = torch.tensor([[-1.0, -2.0, -3.0]])
    mask = torch.tensor([[True, False, True]])
    selected = select_by_covariance(advantages, log_probs, mask, torch.tensor([0]), 1.0, choose_highest)
    assert selected.tolist() == [[True, False, True]]


def test_tokens_between_the_bounds_are_selected_at_random() -> None:
    covariances = torch.linspace(0, 9, 1000, dtype=torch.float64)
    low = 2.0
    high = 7.0
    first, again, other = (
        choose_between(low, high, np.random.default_rng([seed, 5]))(covariances, 100) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for chosen in (first, other):
        assert int(chosen.sum()) == 100
        assert covariances[chosen].min() > low
        assert covariances[chosen].max() < high
        assert covariances[chosen].mean() == pytest.approx(4.5, abs=0.5)
    every = choose_between(low, high, np.random.default_rng(1))(covariances, 1000)
    assert torch.equal(every, (covariances > low) & (covariances < high))


def test_a_token_near_a_bound_changes_no_other_choice() -> None:
    covariances = torch.linspace(0, 9, 1000, dtype=torch.float64)
    wide, narrow = (choose_between(2.0, high, np.random.default_rng(1))(covariances, 1000) for high in (7.0, 6.99))
    assert int((wide != narrow).sum()) == 1


def selected(batch: TrainingBatch) -> torch.Tensor:
    assert batch.experience.selected is not None
    return batch.experience.selected


@pytest.mark.parametrize("algorithm", [CLIP, KL], ids=["clip_cov", "kl_cov"])
@pytest.mark.parametrize(("options", "ranks"), [each[1:] for each in SPLITS], ids=[each[0] for each in SPLITS])
def test_no_split_of_the_batch_changes_tokens_loss_or_gradient(
    config: MakeConfig, tiny_model: str, algorithm: Json, options: Json, ranks: int
) -> None:
    whole = config(algorithm)
    workers = Workers(tiny_model, whole)
    expected = build(whole, workers)
    assert int(selected(expected).sum()) == 3  # of 19 tokens 3.8
    split = config(algorithm, **options)
    others = Workers(tiny_model, split, ranks)
    found = build(split, others)
    assert torch.equal(selected(found), selected(expected))
    update, result = (
        actor.update(*next(split_mini_batches(move(batch.experience), rows=8, shares=1)))
        for actor, batch in ((workers.actor, expected), (others.actor, found))
    )
    assert result.shares == pytest.approx(update.shares, rel=1e-5, abs=1e-6)
    assert result.grad_norm == pytest.approx(update.grad_norm, rel=1e-5)
    assert update.grad_norm > 0


def move(experience: Experience) -> Experience:
    """Return the experience as if the policy had moved since: the distance from the old policy has a gradient."""
    return replace(experience, old_log_probs=experience.old_log_probs - 0.1)


def test_clip_cov_learns_nothing_from_the_selected_tokens(config: MakeConfig, tiny_model: str) -> None:
    settings = config(CLIP)
    workers = Workers(tiny_model, settings)
    batch = build(settings, workers)
    ((part,),) = split_mini_batches(batch.experience, rows=8, shares=1)
    update = workers.actor.update(part)
    kept = batch.experience.sequences.response_mask & ~selected(batch)
    assert update.shares["actor/pg_loss"] == pytest.approx(
        -float(batch.experience.advantages[kept].sum()) / 19, abs=1e-6
    )
    assert update.shares["actor/pg_clipfrac"] == pytest.approx(3 / 19)


def test_kl_cov_adds_the_distance_of_the_selected_tokens(config: MakeConfig, tiny_model: str) -> None:
    settings = config({**KL, "ppoKlCoef": 0.7})
    workers = Workers(tiny_model, settings)
    batch = build(settings, workers)
    moved = move(batch.experience)
    ((part,),) = split_mini_batches(moved, rows=8, shares=1)
    update = workers.actor.update(part)
    mask = moved.sequences.response_mask
    expected = (-float(moved.advantages[mask].sum()) * float(torch.tensor(0.1).exp()) + 3 * 0.7 * 0.1) / 19
    assert update.shares["actor/pg_loss"] == pytest.approx(expected, abs=1e-5)
    assert update.shares["actor/ppo_kl"] == pytest.approx(0.1, abs=1e-5)


def test_each_setting_changes_the_selected_tokens(config: MakeConfig, tiny_model: str) -> None:
    def tokens(algorithm: Json, **training: Any) -> list[list[bool]]:
        settings = config(algorithm, **training)
        found: list[list[bool]] = selected(build(settings, Workers(tiny_model, settings))).tolist()
        return found

    plain = tokens(CLIP)
    assert tokens(CLIP) == plain
    for name, value in {"clipCovRatio": 0.5, "clipCovLb": -10.0, "clipCovUb": 0.0}.items():
        assert tokens({**CLIP, name: value}) != plain, name
    assert tokens(CLIP, seed=8) != plain
    assert tokens({**KL, "klCovRatio": 0.5}) != tokens(KL)


def test_the_engines_log_probabilities_select_in_bypass_mode(config: MakeConfig, tiny_model: str) -> None:
    settings = config({**KL, "rolloutCorrection": {"bypassMode": True}})
    batch = build(settings, Workers(tiny_model, settings))
    assert batch.entropy is None
    mask = batch.experience.sequences.response_mask
    groups = torch.zeros(len(mask))
    found = select_by_covariance(
        batch.experience.advantages, batch.engine.values, mask, groups, KL["klCovRatio"], choose_highest
    )
    assert torch.equal(selected(batch), found)


def test_the_selected_tokens_reach_other_processes(config: MakeConfig, tiny_model: str) -> None:
    settings = config(KL)
    experience = build(settings, Workers(tiny_model, settings)).experience
    function, arguments = experience.__reduce__()
    copied = function(*arguments)
    assert copied.selected.dtype == torch.bool
    assert_close(copied.selected, experience.selected)
