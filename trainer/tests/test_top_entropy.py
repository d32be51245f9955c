"""algorithm.topEntropyQuantile: which tokens it selects, and that no split of the batch changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.top_entropy import select_top_entropy
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.sequences import split_mini_batches
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.policy.actor import Actor
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

pytestmark = pytest.mark.usefixtures("process_group")
MakeConfig = Callable[..., TrainingConfig]
Json = dict[str, Any]
SCORES = [1.0, 0.0, 0.25, 0.5, float("nan"), 0.75, 0.0, 1.0]
LENGTHS = [3, 1, 4, 2, 2, 5, 1, 3]


def select(entropy: list[list[float]], mask: list[list[int]], share: float, groups: list[int] | None = None) -> Any:
    selected, thresholds = select_top_entropy(
        torch.tensor(entropy), torch.tensor(mask).bool(), torch.tensor(groups or [0] * len(mask)), share
    )
    return selected.int().tolist(), thresholds.tolist()


@pytest.mark.parametrize(
    ("share", "expected", "threshold"),
    [(0.01, [0, 0, 0, 0, 1], 5.0), (0.2, [0, 0, 0, 0, 1], 5.0), (0.5, [0, 0, 1, 1, 1], 3.0), (1.0, [1] * 5, 1.0)],
)
def test_the_share_of_the_tokens_is_selected(share: float, expected: list[int], threshold: float) -> None:
    assert select([[1.0, 2.0, 3.0, 4.0, 5.0]], [[1] * 5], share) == ([expected], [threshold])


def test_equal_entropies_are_selected_together() -> None:
    assert select([[1.0, 1.0, 1.0, 0.0]], [[1] * 4], 0.25)[0] == [[1, 1, 1, 0]]


def test_tokens_outside_of_the_mask_have_no_effect() -> None:
    entropy = [[float("nan"), 9.0, 1.0], [2.0, 0.5, float("inf")]]
    assert select(entropy, [[0, 0, 1], [1, 1, 0]], 0.3) == ([[0, 0, 0], [1, 0, 0]], [2.0])


def test_each_mini_batch_has_its_threshold() -> None:
    entropy = [[5.0, 6.0], [1.0, 2.0], [7.0, 8.0]]
    assert select(entropy, [[1, 1]] * 3, 0.4, [0, 1, 1]) == ([[0, 1], [0, 0], [1, 1]], [6.0, 7.0])
    assert select(entropy, [[1, 1], [0, 0], [0, 0]], 0.4, [0, 1, 1]) == ([[0, 1], [0, 0], [0, 0]], [6.0])


class Workers:
    """Train workers with a real policy. Each of `ranks` gets its rows of a pass."""

    def __init__(self, files: str, config: TrainingConfig, ranks: int = 1) -> None:
        self._ranks = ranks
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
        return self._ranks

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        if method is TrainWorker.ref_log_probs:
            return [(part.flatten(self.actor.ref_log_probs(part)),) for part in columns[0]]
        return [tuple(part.flatten(each) for each in self.actor.log_probs(part)) for part in columns[0]]


@pytest.fixture
def config(make_config: MakeConfig) -> MakeConfig:
    def make(algorithm: Json | None = None, *, model: Json | None = None, **training: Any) -> TrainingConfig:
        sizes = {"trainBatchSize": 4, "ppoMiniBatchSize": 4, "ppoMicroBatchSizePerDevice": 8}
        return make_config(
            model=model or {},
            algorithm={"topEntropyQuantile": 0.4, **(algorithm or {})},
            training={**sizes, **training},
            rollout={"responsesPerPrompt": 2, "temperature": 0.7},
        )

    return make


def build(config: TrainingConfig, workers: Workers) -> TrainingBatch:
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(50, 90, (length,), generator=generator).tolist() for length in LENGTHS]
    total = torch.tensor(SCORES)
    batch = RolloutBatch(
        [Prompt(0, (50 + row, 51), "", "", "", "") for row in range(len(SCORES))],
        [Response(each, [-5.5 - 0.1 * row] * len(each)) for row, each in enumerate(tokens)],
        [""] * len(SCORES),
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(len(SCORES)),
        None,
    )
    return build_experience(
        config,
        batch,
        data_parallel=DataParallel(workers, context_parallel_size=1),
        kl_controller=None,
        pad_token_id=0,
        stopwatch=Stopwatch(),
    )


def selected(batch: TrainingBatch) -> Tensor:
    weights = batch.experience.weights
    assert weights is not None
    return weights > 0


def test_the_batch_has_weight_0_for_the_tokens_that_are_left_out(config: MakeConfig, tiny_model: str) -> None:
    settings = config()
    batch = build(settings, Workers(tiny_model, settings))
    mask = batch.experience.sequences.response_mask
    assert batch.entropy is not None
    assert int(mask.sum()) == 19  # without the response whose reward failed
    assert int(selected(batch).sum()) == 8  # of 19 tokens those above number 10.8
    lowest = batch.entropy[selected(batch)].min()
    assert lowest > batch.entropy[mask & ~selected(batch)].max()
    assert batch.metrics["actor/top_entropy_threshold"] == pytest.approx(float(lowest))
    assert batch.own_rows is None


SPLITS: list[tuple[str, Json, int]] = [
    ("small passes", {"logProbMicroBatchSizePerDevice": 3}, 1),
    ("small updates", {"ppoMicroBatchSizePerDevice": 1}, 1),
    ("packed", {"model": {"useRemovePadding": True}}, 1),
    ("dynamic", {"model": {"useRemovePadding": True}, "useDynamicBsz": True, "ppoMaxTokenLenPerDevice": 12}, 1),
    ("two ranks", {}, 2),
    ("three ranks", {"logProbMicroBatchSizePerDevice": 1}, 3),
]


@pytest.mark.parametrize(("options", "ranks"), [each[1:] for each in SPLITS], ids=[each[0] for each in SPLITS])
def test_no_split_of_the_batch_changes_tokens_loss_or_gradient(
    config: MakeConfig, tiny_model: str, options: Json, ranks: int
) -> None:
    whole = config()
    workers = Workers(tiny_model, whole)
    expected = build(whole, workers)
    ((one,),) = split_mini_batches(expected.experience, rows=8, shares=1)
    update = workers.actor.update(one)
    split = config(**options)
    others = Workers(tiny_model, split, ranks)
    found = build(split, others)
    assert torch.equal(selected(found), selected(expected))
    ((other,),) = split_mini_batches(found.experience, rows=8, shares=1)
    result = others.actor.update(other)
    assert result.shares == pytest.approx(update.shares, rel=1e-5, abs=1e-6)
    assert result.grad_norm == pytest.approx(update.grad_norm, rel=1e-5)
    assert update.grad_norm > 0


def test_a_threshold_of_each_micro_batch_would_select_other_tokens(config: MakeConfig, tiny_model: str) -> None:
    """TRL computes the threshold over a micro-batch on all ranks."""
    settings = config()
    batch = build(settings, Workers(tiny_model, settings))
    assert batch.entropy is not None
    mask = batch.experience.sequences.response_mask
    by_row, _ = select_top_entropy(batch.entropy, mask, torch.arange(len(mask)), 0.4)
    assert not torch.equal(by_row, selected(batch))


def test_the_update_learns_from_the_selected_tokens_alone(config: MakeConfig, tiny_model: str) -> None:
    """The denominators count all tokens. The KL term and the entropy bonus learn from all of them."""
    settings = config({"klLossCoef": 0.1, "entropyCoeff": 0.1})
    workers = Workers(tiny_model, settings)
    batch = build(settings, workers)
    ((part,),) = split_mini_batches(batch.experience, rows=8, shares=1)
    update = workers.actor.update(part)
    # the ratio is 1, so that a token's loss is minus its advantage
    expected = -float(batch.experience.advantages[selected(batch)].sum()) / 19
    assert update.shares["actor/pg_loss"] == pytest.approx(expected, abs=1e-6)
    every = replace(batch.experience, weights=None)
    ((part,),) = split_mini_batches(every, rows=8, shares=1)
    other = Workers(tiny_model, settings).actor.update(part)
    for name in ("actor/kl_loss", "actor/entropy_loss"):
        assert update.shares[name] == pytest.approx(other.shares[name], rel=1e-5)
    assert abs(other.shares["actor/pg_loss"] - expected) > 1e-2


def test_the_weights_of_the_rollout_correction_remain(config: MakeConfig, tiny_model: str) -> None:
    corrected = config({"rolloutCorrection": {}, "topEntropyQuantile": 1.0}, ppoEpochs=2)
    both = config({"rolloutCorrection": {}})
    weights = build(corrected, Workers(tiny_model, corrected)).experience.weights
    batch = build(both, Workers(tiny_model, both))
    plain = config()
    assert weights is not None
    assert batch.experience.weights is not None
    assert_close(batch.experience.weights, weights * selected(build(plain, Workers(tiny_model, plain))))
