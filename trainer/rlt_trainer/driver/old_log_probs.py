"""Log-probabilities of the policy at the start of a step: which rows have a pass for them, and their metrics.

The first optimizer step of a batch computes them itself: its policy is the one at the start of the step. TRL does the
same if its batches are aligned (GRPOTrainer of trl 1.16: old_per_token_logps is None).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.rollout_correction import (
    Correction,
    compute_mismatch_metrics,
    correct_rollout,
    is_bypassed,
)
from rlt_trainer.batches.ragged import pad_rows, split_rows
from rlt_trainer.batches.sequences import Experience, Sequences, TokenValues
from rlt_trainer.batches.update_result import OwnPass
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import compute_policy_metrics
from rlt_trainer.workers.train_worker import TrainWorker


@dataclass(frozen=True)
class EngineLogProbs:
    """The log-probabilities of the rollout engine."""

    values: Tensor
    """[S, T]"""
    mask: Tensor
    """[S, T], bool: the tokens that the policy sampled, of responses with a score, whose value is finite."""

    def fill(self, log_probs: Tensor) -> Tensor:
        """Return the values, and `log_probs` [S, T] where they are not finite: a weight of 1, as in TRL."""
        return torch.where(self.values.isfinite(), self.values, log_probs)


def needs_pass(config: TrainingConfig) -> bool:
    """Whether the log-probabilities of all rows are needed before the first update, or again after it.

    A KL term in the reward changes the advantages, a rejection the denominators of the loss, and the entropies or
    covariances of a mini-batch select its tokens. A critic may be trained in steps without an update of the policy.
    """
    algorithm = config.algorithm
    correction = algorithm.rollout_correction
    is_rejecting = correction is not None and correction.rejection is not None
    is_selecting = algorithm.top_entropy_quantile < 1 or selects_by_covariance(algorithm)
    has_other_readers = algorithm.kl_in_reward is not None or algorithm.critic is not None or is_rejecting
    return has_other_readers or is_selecting or config.training.ppo_epochs > 1


def selects_by_covariance(algorithm: Algorithm) -> bool:
    """Whether the policy loss treats tokens differently whose probability rises with their advantage."""
    return algorithm.policy_loss in ("clip_cov", "kl_cov")


def find_mini_batches(config: TrainingConfig, trajectories: Tensor) -> Tensor:
    """Return the mini-batch of each row, as split_mini_batches finds it: [S] from the trajectory of each row [S]."""
    return trajectories // (config.training.ppo_mini_batch_size * config.rollout.responses_per_prompt)


def find_own_rows(config: TrainingConfig, mask: Tensor, trajectories: Tensor) -> Tensor | None:
    """Return the rows of the first optimizer step, as split_mini_batches finds them: [S], bool. None: no row has its
    log-probabilities from the update.

    mask: [S, T], not empty, the tokens of the update; trajectories: [S], the trajectory of each row.
    """
    if is_bypassed(config.algorithm) or needs_pass(config):
        return None
    mini_batches = find_mini_batches(config, trajectories)
    return mini_batches == mini_batches[mask.any(-1)].min()


def compute_log_probs(
    data_parallel: DataParallel, sequences: Sequences, own_rows: Tensor | None, *, records: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute log-probabilities and entropies [S, T] under the policy. 0 in `own_rows` [S], not all, without a pass.

    The third result is the routes of `sequences`. If the pass `records` them (routerReplay R2), it is the pass's own, 0
    in the same rows: an update that computes the log-probabilities of a row computes its routes too.
    """
    others = None if own_rows is None else (~own_rows).nonzero(as_tuple=True)[0]
    chosen = sequences if others is None else sequences.rows(others)
    computed: tuple[Tensor, ...]
    if records:
        computed = data_parallel.compute_with_routes(TrainWorker.record_log_probs, chosen)
    else:
        computed = data_parallel.compute(TrainWorker.log_probs, chosen)
    if others is not None:
        computed = tuple(_place_rows(values, others, len(sequences)) for values in computed)
    log_probs, entropy, *recorded = computed
    return log_probs, entropy, recorded[0] if recorded else sequences.routes


def _place_rows(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return `count` rows with `values` in the row numbers `rows`, and 0 in the others."""
    return values.new_zeros(count, *values.shape[1:]).index_copy(0, rows, values)


def join_own_pass(sequences: Sequences, values: Tensor, own: Sequence[tuple[Sequence[int], TokenValues]]) -> Tensor:
    """Return `values` [S, T] with the row numbers and values of each rank's own pass in their rows."""
    lengths = sequences.response_lengths()
    joined = values.clone()
    for numbers, part in own:
        rows = split_rows(part, [lengths[number] for number in numbers])
        joined[list(numbers)] = pad_rows(rows, np.float32, width=joined.shape[1])
    return joined


def complete_experience(
    config: TrainingConfig, experience: Experience, entropy: Tensor, engine: EngineLogProbs, passes: Sequence[OwnPass]
) -> tuple[Experience, dict[str, float]]:
    """Return the experience with the log-probabilities of the update's own pass, and the metrics of all of them.

    entropy: [S, T]; passes: of all ranks in the first optimizer step.
    """
    sequences = experience.sequences
    own_log_probs = [(each.row_numbers, each.log_probs) for each in passes]
    own_entropies = [(each.row_numbers, each.entropy) for each in passes]
    log_probs = join_own_pass(sequences, experience.old_log_probs, own_log_probs)
    entropy = join_own_pass(sequences, entropy, own_entropies)
    correction = correct_rollouts(config, log_probs, engine)
    metrics = compute_pass_metrics(sequences, log_probs, entropy, engine) | correction.metrics
    complete = replace(
        experience, old_log_probs=log_probs, weights=correction.weights, own_pass=None, rollout_log_probs=None
    )
    return complete, metrics


def compute_pass_metrics(
    sequences: Sequences, log_probs: Tensor, entropy: Tensor, engine: EngineLogProbs
) -> dict[str, float]:
    """Metrics of the entropy and of the mismatch with the engine."""
    mismatch = compute_mismatch_metrics(log_probs, engine.fill(log_probs), engine.mask)
    return compute_policy_metrics(sequences, entropy) | mismatch


def correct_rollouts(config: TrainingConfig, log_probs: Tensor, engine: EngineLogProbs) -> Correction:
    """Apply algorithm.rolloutCorrection to log-probabilities [S, T]. No correction changes nothing."""
    correction = config.algorithm.rollout_correction
    if correction is None or correction.bypass_mode:
        return Correction(None, engine.mask, {})
    return correct_rollout(
        log_probs,
        engine.fill(log_probs),
        engine.mask,
        level=None if correction.level == "none" else correction.level,
        threshold=correction.threshold,
        lower_threshold=correction.lower_threshold,
        rejection=correction.rejection,
        rejection_threshold=correction.rejection_threshold,
    )
