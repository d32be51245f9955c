"""verl's metrics of a step."""

from __future__ import annotations

import math

import pytest
import torch

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.metrics import (
    compute_critic_metrics,
    compute_rollout_metrics,
    compute_sandbox_metrics,
    compute_update_metrics,
)
from rlt_trainer.sandboxes.pool import Statistics

NAN = math.nan


def prompt(index: int, source: str = "sums") -> Prompt:
    return Prompt(index, (1, 2), "1+1=", "2", "2", source)


def rollout_batch(totals: list[float], lengths: list[int], *, sources: tuple[str, ...] = ("sums",)) -> RolloutBatch:
    """A batch of responses with these scores and lengths."""
    responses = [Response((7,) * length, (-1.0,) * length) for length in lengths]
    total = torch.tensor(totals)
    prompts = [prompt(i, sources[i % len(sources)]) for i in range(len(totals))]
    scores = Scores(total, {"exact": total}, total.isnan(), {})
    return RolloutBatch(prompts, responses, [""] * len(totals), scores, torch.zeros(len(totals)), consumed=2)


def test_rewards_advantages_and_lengths() -> None:
    batch = rollout_batch([1.0, 0.0], [1, 3])
    sequences, _ = batch.pad(0)
    advantages = torch.tensor([[2.0, 99.0, 99.0], [-1.0, -1.0, -1.0]])
    metrics = compute_rollout_metrics(sequences, batch, torch.tensor([0.5, 0.0]), advantages, max_response_length=3)
    assert (metrics["critic/score/mean"], metrics["critic/rewards/mean"]) == (0.5, 0.25)
    assert (metrics["critic/advantages/mean"], metrics["critic/advantages/max"]) == (-0.25, 2.0)
    assert (metrics["response_length/mean"], metrics["response_length/clip_ratio"]) == (2.0, 0.5)
    assert metrics["prompt_length/min"] == 2.0


def test_deciles_of_rewards_and_lengths() -> None:
    """Interpolated linearly, without a reward that failed."""
    batch = rollout_batch([*map(float, range(11)), NAN], [*range(1, 13)])
    sequences, _ = batch.pad(0)
    zeros = torch.zeros(12, 12)
    metrics = compute_rollout_metrics(sequences, batch, batch.scores.total, zeros, max_response_length=12)
    assert (metrics["critic/rewards/p10"], metrics["critic/rewards/p90"]) == (1.0, 9.0)
    assert metrics["response_length/p10"] == pytest.approx(2.1)
    assert metrics["response_length/p90"] == pytest.approx(10.9)


def test_a_failed_reward_is_excluded_from_means() -> None:
    batch = rollout_batch([1.0, NAN], [1, 1])
    sequences, _ = batch.pad(0)
    metrics = compute_rollout_metrics(
        sequences, batch, torch.tensor([1.0, NAN]), torch.zeros(2, 1), max_response_length=3
    )
    assert (metrics["critic/score/mean"], metrics["critic/rewards/min"]) == (1.0, 1.0)


def test_a_perfect_critic_explains_all_variance() -> None:
    returns = torch.tensor([[1.0, 2.0, NAN]])
    mask = torch.tensor([[True, True, False]])
    metrics = compute_critic_metrics(torch.where(mask, returns, 0.0), returns, mask)
    assert metrics["critic/vf_explained_var"] == 1.0
    assert metrics["critic/values/mean"] == metrics["critic/returns/mean"] == 1.5


def test_update_metrics_are_sums_over_ranks_and_means_over_steps() -> None:
    def result(loss: float, norm: float, *, skipped: bool = False) -> UpdateResult:
        return UpdateResult({"actor/pg_loss": loss}, norm, skipped, 0.1)

    steps = [[result(1.0, 3.0), result(2.0, 3.0)], [result(3.0, 5.0, skipped=True), result(4.0, 5.0, skipped=True)]]
    metrics = compute_update_metrics(steps)
    assert metrics == {"actor/pg_loss": 5.0, "actor/grad_norm": 4.0, "actor/skipped_updates": 1.0, "actor/lr": 0.1}


def test_claims_of_sandboxes_have_their_median_and_99th_percentile() -> None:
    seconds = [number / 100 for number in range(101)]
    assert compute_sandbox_metrics(Statistics(seconds, failed=3)) == pytest.approx(
        {
            "sandbox/claims": 101,
            "sandbox/failed": 3,
            "sandbox/claim_seconds/p50": 0.5,
            "sandbox/claim_seconds/p99": 0.99,
        }
    )
    assert compute_sandbox_metrics(Statistics()) == {"sandbox/claims": 0, "sandbox/failed": 0}
    assert compute_sandbox_metrics(None) == {}
