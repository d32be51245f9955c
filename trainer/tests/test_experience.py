"""What is learned from scored responses, whatever failed on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.scorer import Scores
from rlt_trainer.rollout.engine import Response
from rlt_trainer.telemetry.stopwatch import Stopwatch

MakeConfig = Callable[..., TrainingConfig]
NAN = math.nan


class OneRank:
    """A policy that gives every token the same probability."""

    ranks = 1

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        ((sequences,),) = shares
        log_probs = torch.where(sequences.response_attention, -2.0, 0.0)
        return [(log_probs, -log_probs) if method == "log_probs" else log_probs]


def learned(config: TrainingConfig, totals: list[float], baselines: list[float] | None = None) -> TrainingBatch:
    """Of responses of two tokens, the second being an observation, with these scores."""
    total = torch.tensor(totals)
    generated = RolloutBatch(
        [Prompt(0, (1, 2), "1+1=", "2", "2", "sums")] * len(totals),
        [Response((7, 8), (-2.0, 0.0), (True, False))] * len(totals),
        [""] * len(totals),
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(len(totals)),
        None if baselines is None else torch.tensor(baselines),
    )
    ranks = DataParallel(OneRank(), context_parallel_size=1)
    return build_experience(config, generated, ranks=ranks, kl_controller=None, pad_token_id=0, watch=Stopwatch())


def test_nothing_is_learned_from_a_failed_reward_or_an_observation(make_config: MakeConfig) -> None:
    result = learned(make_config(rollout={"n": 4}), [1.0, NAN, 0.0, 0.5])
    assert not result.experience.sequences.response_mask[:, 1].any()
    assert result.experience.sequences.response_mask[:, 0].tolist() == [True, False, True, True]
    assert result.experience.advantages[1].tolist() == [0.0, 0.0]
    assert result.experience.advantages.sum() == pytest.approx(0.0)
    assert result.rewards.isnan().tolist() == [False, True, False, False]


def test_a_greedy_response_that_could_not_be_scored_takes_its_prompt_out(make_config: MakeConfig) -> None:
    config = make_config(rollout={"n": 2}, algorithm={"advEstimator": "remax"})
    result = learned(config, [1.0, 0.0, 1.0, 0.0], [NAN, NAN, 0.25, 0.25])
    assert result.experience.sequences.response_mask.any(-1).tolist() == [False, False, True, True]
    assert result.experience.advantages[:, 0].tolist() == [0.0, 0.0, 0.75, -0.25]
    assert result.metrics["reward/failed_baselines"] == 1.0
    assert result.metrics["reward/failed"] == 0.0


def test_a_batch_without_a_score_ends_the_run(make_config: MakeConfig) -> None:
    with pytest.raises(TrainingError, match="Nothing is left to learn from"):
        learned(make_config(rollout={"n": 2}), [NAN, NAN])
