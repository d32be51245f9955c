"""verl's metrics from a step's tensors."""

from __future__ import annotations

import math

import pytest
import torch

from rlt_trainer.metrics import policy_metrics, rollout_metrics, speed_metrics, update_metrics
from rlt_trainer.policy.update_result import UpdateResult
from rlt_trainer.sequences import Sequences

SEQUENCES = Sequences.pad([[1, 2], [3]], [[4], [5, 6, 7]], pad_token_id=0)
MASK = SEQUENCES.response_mask


def test_rewards_advantages_and_lengths() -> None:
    advantages = torch.tensor([[2.0, 99.0, 99.0], [-1.0, -1.0, -1.0]])
    metrics = rollout_metrics(SEQUENCES, torch.tensor([1.0, 0.0]), advantages, max_response_length=3)
    assert metrics["critic/rewards/mean"] == 0.5
    assert metrics["critic/advantages/mean"] == -0.25
    assert metrics["critic/advantages/max"] == 2.0
    assert metrics["response_length/mean"] == 2.0
    assert metrics["response_length/clip_ratio"] == 0.5
    assert metrics["prompt_length/min"] == 1.0


def test_the_engine_is_compared_by_probabilities_of_response_tokens() -> None:
    nothing = torch.zeros(MASK.shape)
    rollout = torch.where(MASK, torch.tensor(0.5).log(), torch.tensor(-math.inf))
    metrics = policy_metrics(MASK, log_probs=nothing, rollout_log_probs=rollout, entropy=torch.ones(MASK.shape))
    assert metrics["training/rollout_probs_diff_mean"] == pytest.approx(0.5)
    assert metrics["actor/entropy"] == 1.0


def test_updates_add_up_over_ranks_and_average_over_optimizer_steps() -> None:
    def result(loss: float, norm: float, *, skipped: bool = False) -> UpdateResult:
        return UpdateResult({"actor/pg_loss": loss}, norm, skipped)

    steps = [[result(1.0, 3.0), result(2.0, 3.0)], [result(3.0, 5.0, skipped=True), result(4.0, 5.0, skipped=True)]]
    metrics = update_metrics(steps, learning_rate=0.1)
    assert metrics == {"actor/pg_loss": 5.0, "actor/grad_norm": 4.0, "actor/skipped_updates": 1.0, "actor/lr": 0.1}


def test_time_that_no_phase_accounts_for_is_shown() -> None:
    metrics = speed_metrics({"gen": 1.0, "adv": 0.5, "step": 2.0}, SEQUENCES, ranks=2)
    assert metrics["timing_s/unaccounted"] == 0.5
    assert metrics["perf/total_num_tokens"] == 7.0
    assert metrics["perf/throughput"] == 7 / 2.0 / 2
