"""An update that computes old log-probabilities itself equals one with a forward pass for them, to 1e-6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from in_process import train
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm, PolicyLoss
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences, split_mini_batches
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.driver.old_log_probs import (
    compute_log_probs,
    compute_pass_metrics,
    correct_rollouts,
    join_own_pass,
)
from rlt_trainer.policy.actor import Actor
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

MakeConfig = Callable[..., TrainingConfig]
Json = dict[str, Any]
SCORES = [1.0, 0.0, 0.25, float("nan"), 0.5, 0.75, 0.0, 1.0]
"""The reward of one response failed."""
LENGTHS = [3, 1, 4, 2, 2, 5, 1, 3]
CORRECTIONS: list[Json] = [
    {"level": "token"},
    {"level": "sequence", "threshold": 3.0},
    {"level": "token", "lowerThreshold": 0.6, "threshold": 1.7},
]
LOSSES_WITHOUT_SELECTION = sorted({*get_args(PolicyLoss)} - {"clip_cov", "kl_cov"})
ALGORITHMS: list[Json] = [
    *({"advEstimator": each} for each in get_args(Algorithm.model_fields["adv_estimator"].annotation) if each != "gae"),
    *({"policyLoss": each} for each in LOSSES_WITHOUT_SELECTION),
    *({"lossAggMode": each} for each in get_args(Algorithm.model_fields["loss_agg_mode"].annotation)),
    *({"rolloutCorrection": each} for each in CORRECTIONS),
    {"convention": "trl", "klLossCoef": 0.1},
    {"entropyCoeff": 0.1, "maskTruncatedCompletions": True, "clipRatioC": 3.0},
]


class Worker:
    """The train worker of a real actor: log-probabilities, and updates."""

    def __init__(self, files: str, config: TrainingConfig) -> None:
        self.passed: list[int] = []
        """Number of rows in each pass for old log-probabilities."""
        self.actor = Actor(
            files,
            model=config.model,
            dtype=torch.float32,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=config.algorithm,
            training=config.training,
            temperature=config.rollout.temperature,
            max_response_length=config.data.max_response_length,
        )

    def __len__(self) -> int:
        return 1

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        ((argument,),) = columns
        if method is TrainWorker.update_actor:
            return [self.update(argument)]
        if method is TrainWorker.ref_log_probs:
            return [(argument.flatten(self.actor.ref_log_probs(argument)),)]
        self.passed.append(len(argument))
        return [tuple(argument.flatten(each) for each in self.actor.log_probs(argument))]

    def update(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        return [self.actor.update(batch) for batch in batches]


@pytest.fixture
def config(make_config: MakeConfig, one_rank: None) -> Callable[..., TrainingConfig]:
    def make(algorithm: Json, *, mini_batches: int = 1, **training: Any) -> TrainingConfig:
        sizes = {"trainBatchSize": 4, "ppoMiniBatchSize": 4 // mini_batches, "ppoMicroBatchSizePerDevice": 3}
        return make_config(
            algorithm=algorithm, training={**sizes, **training}, rollout={"responsesPerPrompt": 2, "temperature": 0.7}
        )

    return make


def build(config: TrainingConfig, worker: Worker) -> TrainingBatch:
    """Build a batch whose engine disagrees with the trainer, with one truncated and one invalid token."""
    generator = torch.Generator().manual_seed(0)
    responses = []
    for row, length in enumerate(LENGTHS):
        tokens = torch.randint(50, 90, (length,), generator=generator).tolist()
        log_probs = (-5.5 + torch.randn(length, generator=generator)).tolist()
        reason = "length" if row == 5 else "stop"
        responses.append(Response(tokens, log_probs, finish_reason=reason))  # type: ignore[arg-type]
    total = torch.tensor(SCORES)
    batch = RolloutBatch(
        [Prompt(0, (50 + row, 51), "", "", "", "") for row in range(len(SCORES))],
        responses,
        [""] * len(SCORES),
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(len(SCORES)),
        torch.full((len(SCORES),), 0.25),
    )
    return build_experience(
        config,
        batch,
        data_parallel=DataParallel(worker, context_parallel_size=1),
        kl_controller=None,
        pad_token_id=0,
        stopwatch=Stopwatch(),
    )


def update(config: TrainingConfig, worker: Worker, batch: TrainingBatch) -> list[Sequence[UpdateResult]]:
    rows = config.training.ppo_mini_batch_size * config.rollout.responses_per_prompt
    data_parallel = DataParallel(worker, context_parallel_size=1)
    return data_parallel.update(
        TrainWorker.update_actor, batch.experience, rows=rows, epochs=config.training.ppo_epochs
    )


def run_pass(config: TrainingConfig, worker: Worker, batch: TrainingBatch) -> TrainingBatch:
    """Return the batch with a pass for the log-probabilities of all rows."""
    sequences = batch.experience.sequences
    data_parallel = DataParallel(worker, context_parallel_size=1)
    log_probs, entropy, _ = compute_log_probs(data_parallel, sequences, None)
    correction = correct_rollouts(config, log_probs, batch.engine)
    metrics = compute_pass_metrics(sequences, log_probs, entropy, batch.engine) | correction.metrics
    experience = replace(
        batch.experience,
        old_log_probs=log_probs,
        weights=correction.weights,
        own_pass=None,
        rollout_log_probs=None,
    )
    return replace(batch, experience=experience, own_rows=None, metrics=batch.metrics | metrics)


def weights(worker: Worker) -> Iterator[Tensor]:
    return (weight for _, weight in worker.actor.gather_weights())


@pytest.mark.parametrize("mini_batches", [1, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_an_update_with_its_own_pass_equals_one_with_a_pass_before(
    config: Callable[..., TrainingConfig], tiny_model: str, algorithm: Json, mini_batches: int
) -> None:
    settings = config(algorithm, mini_batches=mini_batches)
    own = Worker(tiny_model, settings)
    batch = build(settings, own)
    assert own.passed == ([] if mini_batches == 1 else [4])  # rows of the later mini-batch alone
    results = update(settings, own, batch)
    completed = batch.complete(settings, results)

    given = Worker(tiny_model, settings)
    complete = run_pass(settings, given, build(settings, given))
    expected = update(settings, given, complete)
    for (found,), (wanted,) in zip(results, expected, strict=True):
        assert found.shares == pytest.approx(wanted.shares, rel=1e-6, abs=1e-6)
        assert found.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-6)
        assert wanted.grad_norm > 0
    for mine, theirs in zip(weights(own), weights(given), strict=True):
        assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
    assert completed.metrics == pytest.approx(complete.metrics, rel=1e-5, abs=1e-6)
    assert completed.experience.own_pass is None
    assert_close(completed.experience.old_log_probs, complete.experience.old_log_probs, rtol=1e-6, atol=1e-6)
    if algorithm.get("rolloutCorrection"):
        assert completed.experience.weights is not None
        assert_close(completed.experience.weights, complete.experience.weights, rtol=1e-5, atol=1e-6)


def test_the_own_passes_of_ranks_are_joined_in_the_order_of_the_batch() -> None:
    sequences = Sequences.pad([[7]] * 5, [[8] * length for length in (2, 1, 3, 2, 1)], pad_token_id=0)
    values = torch.arange(15.0).view(5, 3) * sequences.response_mask
    experience = Experience(sequences, values, values)
    (parts,) = split_mini_batches(experience, rows=5, shares=3)  # a copy of the first row fills the last share
    own = []
    for part in parts:
        assert part.row_numbers is not None
        is_row = torch.tensor(part.row_numbers) >= 0
        rows = part.experience.rows(is_row)
        own.append(([each for each in part.row_numbers if each >= 0], rows.sequences.flatten(rows.old_log_probs)))
    assert sorted(len(numbers) for numbers, _ in own) == [1, 2, 2]
    assert torch.equal(join_own_pass(sequences, torch.zeros(5, 3), own), values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        ({"klInReward": {}}, {}),
        ({"advEstimator": "gae", "critic": {}}, {}),
        ({"rolloutCorrection": {"rejection": "token_k1", "rejectionThreshold": 9.0}}, {}),
        ({}, {"ppoEpochs": 2}),
        ({"topEntropyQuantile": 0.5}, {}),
        ({"policyLoss": "clip_cov"}, {}),
        ({"policyLoss": "kl_cov"}, {}),
    ],
    ids=str,
)
def test_what_needs_the_log_probabilities_before_the_update_has_the_pass(
    make_config: MakeConfig, algorithm: Json, training: Json
) -> None:
    sizes = {"totalSteps": 1, "ppoMiniBatchSize": 8}
    (step,) = train(make_config(workers=1, algorithm=algorithm, training={**sizes, **training}))
    assert step["timing_s/old_log_prob"] > 0


@pytest.mark.slow
def test_a_step_of_one_update_has_no_pass_and_all_metrics(make_config: MakeConfig) -> None:
    (one,) = train(make_config(workers=1, algorithm={}, training={"totalSteps": 1, "ppoMiniBatchSize": 8}))
    assert "timing_s/old_log_prob" not in one
    assert one["actor/entropy"] > 0
    assert one["training/rollout_probs_diff_mean"] < 1e-5
    assert one["actor/ppo_kl"] == 0.0
