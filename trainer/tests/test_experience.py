"""The training batch of scored responses, with failed rewards and baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from rlt_api.spec.training_config import TrainingConfig
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
        log_probs = np.full(sum(sequences.response_lengths()), -2.0, dtype=np.float32)
        return [(log_probs, -log_probs) if method is TrainWorker.log_probs else (log_probs,)]


OBSERVED = Response((7, 8), (-2.0, 0.0), (True, False))
"""Two tokens, the second of an observation."""


def build(
    config: TrainingConfig,
    totals: list[float],
    baselines: list[float] | None = None,
    responses: list[Response] | None = None,
) -> TrainingBatch:
    """Build the batch of responses with these scores. The default of all responses is OBSERVED."""
    total = torch.tensor(totals)
    batch = RolloutBatch(
        [Prompt(0, (1, 2), "1+1=", "2", "2", "sums")] * len(totals),
        responses or [OBSERVED] * len(totals),
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
    result = build(make_config(rollout={"responsesPerPrompt": 4}), [1.0, NAN, 0.0, 0.5])
    assert not result.experience.sequences.response_mask[:, 1].any()
    assert result.experience.sequences.response_mask[:, 0].tolist() == [True, False, True, True]
    assert result.experience.advantages[1].tolist() == [0.0, 0.0]
    assert result.experience.advantages.sum() == pytest.approx(0.0)
    assert result.rewards.isnan().tolist() == [False, True, False, False]


def test_a_failed_baseline_leaves_its_prompt_out(make_config: MakeConfig) -> None:
    config = make_config(rollout={"responsesPerPrompt": 2}, algorithm={"advEstimator": "remax"})
    result = build(config, [1.0, 0.0, 1.0, 0.0], [NAN, NAN, 0.25, 0.25])
    assert result.experience.sequences.response_mask.any(-1).tolist() == [False, False, True, True]
    assert result.experience.advantages[:, 0].tolist() == [0.0, 0.0, 0.75, -0.25]
    assert result.metrics["reward/failed_baselines"] == 1.0
    assert result.metrics["reward/failed"] == 0.0


def test_a_batch_without_scores_ends_the_run(make_config: MakeConfig) -> None:
    with pytest.raises(TrainingError, match="No data to train on"):
        build(make_config(rollout={"responsesPerPrompt": 2}), [NAN, NAN])


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "opo", "reinforce_plus_plus_baseline"])
def test_a_response_whose_siblings_failed_has_no_advantage(make_config: MakeConfig, estimator: str) -> None:
    config = make_config(rollout={"responsesPerPrompt": 2}, algorithm={"advEstimator": estimator})
    result = build(config, [0.75, NAN, 0.5, 0.25])
    assert result.experience.advantages[0].tolist() == [0.0, 0.0]
    assert result.experience.advantages[2, 0] > 0


def test_the_score_is_the_advantage_of_the_only_response_to_a_prompt(make_config: MakeConfig) -> None:
    advantages = build(make_config(rollout={"responsesPerPrompt": 1}), [0.75, 0.5]).experience.advantages
    assert advantages[:, 0].tolist() == pytest.approx([0.75, 0.5], rel=1e-5)


def long_responses(count: int, invalid: float | None = None) -> list[Response]:
    """Return responses of 100 tokens. `invalid`: the engine's log-probability of the first token of the first one."""
    responses = [Response((7,) * 100, (-2.0,) * 100)] * count
    return responses if invalid is None else [Response((7,) * 100, (invalid, *(-2.0,) * 99)), *responses[1:]]


@pytest.mark.parametrize("value", [NAN, -math.inf])
@pytest.mark.parametrize("level", ["token", "sequence", None])
def test_an_invalid_log_probability_of_the_engine_leaves_its_token_out(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture, level: str | None, value: float
) -> None:
    algorithm = {"rolloutCorrection": {"level": level, "rejection": "seq_mean_k1", "rejectionThreshold": 1.5}}
    config = make_config(rollout={"responsesPerPrompt": 2}, algorithm=algorithm if level else {})
    result = build(config, [1.0, 0.0], responses=long_responses(2, invalid=value))
    mask = result.experience.sequences.response_mask
    assert mask.sum() == 199
    assert not mask[0, 0]
    assert result.metrics["rollout_corr/invalid_log_probs"] == 1.0
    assert all(math.isfinite(metric) for metric in result.metrics.values())
    if result.experience.weights is not None:
        assert torch.equal(result.experience.weights[mask], torch.ones(199))
    assert "left 1 of 200 tokens out" in caplog.text


def test_many_invalid_log_probabilities_end_the_run(make_config: MakeConfig) -> None:
    with pytest.raises(TrainingError, match="not finite for 1 of 2 tokens"):
        build(
            make_config(rollout={"responsesPerPrompt": 2}),
            [1.0, 0.0],
            responses=[Response((7,), (NAN,)), Response((7,), (-2.0,))],
        )


def test_truncated_responses_are_masked_and_count_in_their_group(make_config: MakeConfig) -> None:
    config = make_config(
        rollout={"responsesPerPrompt": 2}, algorithm={"maskTruncatedCompletions": True, "normAdvByStdInGrpo": False}
    )
    truncated = Response((7, 8), (-2.0, -2.0), finish_reason="length")
    result = build(config, [0.0, 1.0], responses=[truncated, Response((7, 8), (-2.0, -2.0))])
    assert result.experience.sequences.response_mask.any(-1).tolist() == [False, True]
    assert result.experience.advantages[1].tolist() == [0.5, 0.5]
    with pytest.raises(TrainingError, match=r"all responses have the maximum length, and algorithm\.maskTruncated"):
        build(config, [0.0, 1.0], responses=[truncated, truncated])


ESTIMATORS = ["grpo", "rloo", "opo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "grpo_passk"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rejected_tokens_leave_rewards_and_advantages_unchanged(make_config: MakeConfig, estimator: str) -> None:
    """Also if the rejected token is the last one, which has the reward."""
    last = Response((7, 8, 9), (-2.0, -2.0, -9.0))  # the trainer's log-probability of every token is -2
    responses = [last, Response((7,), (-2.0,)), Response((7, 8), (-9.0, -2.0)), Response((7, 8), (-2.0, -2.0))]
    scores = [1.0, 0.0, 0.25, 0.5]
    rejection = {"level": "none", "rejection": "token_k1", "rejectionThreshold": 2.0}
    kept = build(
        make_config(rollout={"responsesPerPrompt": 2}, algorithm={"advEstimator": estimator}),
        scores,
        responses=responses,
    )
    algorithm = {"advEstimator": estimator, "rolloutCorrection": rejection}
    result = build(make_config(rollout={"responsesPerPrompt": 2}, algorithm=algorithm), scores, responses=responses)
    assert kept.experience.sequences.response_mask.sum() - result.experience.sequences.response_mask.sum() == 2
    assert torch.equal(result.experience.advantages, kept.experience.advantages)
    assert torch.equal(result.rewards, kept.rewards)


def test_bypass_mode_takes_the_engines_log_probabilities_without_a_forward_pass(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods: list[Any] = []
    each = OneWorker.each

    def record(self: OneWorker, method: Callable[..., Any], *rest: Any) -> Any:
        methods.append(method)
        return each(self, method, *rest)

    monkeypatch.setattr(OneWorker, "each", record)
    responses = [Response((7, 8), (-1.5, -0.5)), Response((7,), (-2.5,))]
    algorithm = {"rolloutCorrection": {"bypassMode": True}, "klLossCoef": 0.1}
    result = build(make_config(rollout={"responsesPerPrompt": 2}, algorithm=algorithm), [1.0, 0.0], responses=responses)
    assert methods == [TrainWorker.ref_log_probs]
    assert result.experience.old_log_probs.tolist() == [[-1.5, -0.5], [-2.5, 0.0]]
    assert result.experience.weights is None
    assert not {name for name in result.metrics if "diff" in name or "entropy" in name}


def test_bypass_mode_leaves_invalid_log_probabilities_out(make_config: MakeConfig) -> None:
    config = make_config(rollout={"responsesPerPrompt": 2}, algorithm={"rolloutCorrection": {"bypassMode": True}})
    experience = build(config, [1.0, 0.0], responses=long_responses(2, invalid=NAN)).experience
    assert experience.sequences.response_mask.sum() == 199
    assert experience.old_log_probs.isfinite().all()


EPISODE = Response((7, 8, 9), (-2.0, 0.0, -2.0), (True, False, True), prompt=(4,), earlier=(OBSERVED, OBSERVED))
"""Three sequences of an agent."""


def test_the_sequences_of_an_episode_have_its_advantage_and_count_once_in_its_group(make_config: MakeConfig) -> None:
    config = make_config(rollout={"responsesPerPrompt": 3})
    alone = build(config, [1.0, 0.25, 0.25])
    result = build(config, [1.0, 0.25, 0.25], responses=[EPISODE, OBSERVED, OBSERVED])
    experience = result.experience
    mask = result.experience.sequences.response_mask
    assert experience.trajectories is not None
    assert experience.trajectories.tolist() == [0, 0, 0, 1, 2]
    assert experience.sequences.prompts[:3].tolist() == [[1, 2], [1, 2], [0, 4]]
    expected = alone.experience.advantages[:, 0][experience.trajectories]
    assert torch.equal(experience.advantages, torch.where(mask, expected[:, None], 0.0))
    assert torch.equal(result.rewards, alone.rewards)
    assert result.metrics["critic/score/mean"] == 0.5
    assert result.metrics["num_turns/max"] == 3


def test_a_failed_episode_is_left_out_with_all_its_sequences(make_config: MakeConfig) -> None:
    result = build(
        make_config(rollout={"responsesPerPrompt": 3}), [NAN, 0.25, 0.75], responses=[EPISODE, OBSERVED, OBSERVED]
    )
    assert result.experience.sequences.response_mask.any(-1).tolist() == [False, False, False, True, True]


def test_later_sequences_follow_the_earlier_ones_of_an_episode(make_config: MakeConfig) -> None:
    """REINFORCE++'s discounted returns: the reward is at the last token of the last sequence."""
    config = make_config(
        rollout={"responsesPerPrompt": 1}, algorithm={"advEstimator": "reinforce_plus_plus", "gamma": 0.5}
    )
    experience = build(config, [1.0], responses=[EPISODE]).experience
    first, second, third, last = experience.advantages[experience.sequences.response_mask].tolist()  # whitened
    assert [(each - first) / (last - first) for each in (second, third)] == pytest.approx([1 / 7, 3 / 7])
