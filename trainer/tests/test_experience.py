"""The training batch of scored responses, with failed rewards and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.errors import TrainingError
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

MakeConfig = Callable[..., TrainingConfig]
NAN = math.nan


class OneWorker:
    """A train worker whose policy gives every token the same probability."""

    def __len__(self) -> int:
        return 1

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        ((sequences,),) = columns
        log_probs = torch.where(sequences.response_attention, -2.0, 0.0)
        return [(log_probs, -log_probs) if method is TrainWorker.log_probs else log_probs]


def build(config: TrainingConfig, totals: list[float], baselines: list[float] | None = None) -> TrainingBatch:
    """Build the batch of responses with these scores. Each has two tokens, the second of an observation."""
    total = torch.tensor(totals)
    batch = RolloutBatch(
        [Prompt(0, (1, 2), "1+1=", "2", "2", "sums")] * len(totals),
        [Response((7, 8), (-2.0, 0.0), (True, False))] * len(totals),
        [""] * len(totals),
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(len(totals)),
        None if baselines is None else torch.tensor(baselines),
    )
    data_parallel = DataParallel(OneWorker(), context_parallel_size=1)
    return build_experience(
        config, batch, data_parallel=data_parallel, kl_controller=None, pad_token_id=0, stopwatch=Stopwatch()
    )


def test_failed_rewards_and_observations_are_left_out_of_the_update(make_config: MakeConfig) -> None:
    result = build(make_config(rollout={"n": 4}), [1.0, NAN, 0.0, 0.5])
    assert not result.experience.sequences.response_mask[:, 1].any()
    assert result.experience.sequences.response_mask[:, 0].tolist() == [True, False, True, True]
    assert result.experience.advantages[1].tolist() == [0.0, 0.0]
    assert result.experience.advantages.sum() == pytest.approx(0.0)
    assert result.rewards.isnan().tolist() == [False, True, False, False]


def test_a_failed_baseline_leaves_its_prompt_out(make_config: MakeConfig) -> None:
    config = make_config(rollout={"n": 2}, algorithm={"advEstimator": "remax"})
    result = build(config, [1.0, 0.0, 1.0, 0.0], [NAN, NAN, 0.25, 0.25])
    assert result.experience.sequences.response_mask.any(-1).tolist() == [False, False, True, True]
    assert result.experience.advantages[:, 0].tolist() == [0.0, 0.0, 0.75, -0.25]
    assert result.metrics["reward/failed_baselines"] == 1.0
    assert result.metrics["reward/failed"] == 0.0


def test_a_batch_without_scores_ends_the_run(make_config: MakeConfig) -> None:
    with pytest.raises(TrainingError, match="No data to train on"):
        build(make_config(rollout={"n": 2}), [NAN, NAN])
