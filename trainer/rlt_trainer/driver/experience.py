"""From a rollout batch to a training batch: log-probabilities, rollout correction, values, advantages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs, Advantages, Estimator, place_at_last_token
from rlt_trainer.algorithms.kl_controller import KlController, apply_kl_penalty
from rlt_trainer.algorithms.rollout_correction import is_bypassed
from rlt_trainer.algorithms.user_functions import load_user_function
from rlt_trainer.batches.rollout_batch import RolloutBatch, compute_group_numbers
from rlt_trainer.batches.sequences import Experience, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import compute_critic_metrics, compute_rollout_metrics, compute_source_metrics
from rlt_trainer.driver.old_log_probs import (
    EngineLogProbs,
    complete_experience,
    compute_log_probs,
    compute_pass_metrics,
    correct_rollouts,
    find_own_rows,
)
from rlt_trainer.driver.token_selection import TokenSelection, select_tokens
from rlt_trainer.errors import TrainingError
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

MAX_INVALID_SHARE = 0.01
"""Maximum share of tokens whose log-probability in the engine is not finite."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingBatch:
    """The experience of a step with its metrics."""

    experience: Experience
    engine: EngineLogProbs
    rewards: Tensor
    """[B]: score plus penalty and KL term of each trajectory (see RolloutBatch). NaN if a reward failed."""
    advantages: Tensor
    """[B]: mean advantage of each trajectory's tokens that the policy sampled. NaN if a reward failed."""
    metrics: dict[str, float]
    """If the update computes some log-probabilities, the metrics of log-probabilities are missing."""
    entropy: Tensor | None
    """[S, T]: 0 in `own_rows`. None: bypassMode."""
    own_rows: Tensor | None
    """[S], bool: the rows without a pass for old log-probabilities, which the first optimizer step computes."""

    def complete(self, config: TrainingConfig, results: Sequence[Sequence[UpdateResult]]) -> Self:
        """Add what the first optimizer step computed in its own pass. `results`: by optimizer step and rank."""
        if self.own_rows is None:
            return self
        assert self.entropy is not None
        passes = [result.own_pass for result in results[0] if result.own_pass is not None]
        experience, metrics = complete_experience(config, self.experience, self.entropy, self.engine, passes)
        return replace(self, experience=experience, metrics=self.metrics | metrics)


@dataclass(frozen=True)
class _Passes:
    """Results of the train workers for sequences of a batch, all [S, T]. None: the algorithm does not need them."""

    own_rows: Tensor | None
    """[S], bool: rows without a pass for old log-probabilities and entropy, which are 0. None: no row."""
    old_log_probs: Tensor
    entropy: Tensor | None
    ref_log_probs: Tensor | None
    teacher_log_probs: Tensor | None
    """[S, T], or [S, T, K] of `teacher_ids`."""
    teacher_ids: Tensor | None
    """[S, T, K]. None: the distillation's loss is not forward_kl_topk."""
    values: Tensor | None
    routes: Tensor | None
    """[S, P + T, L, k]: the experts of the update (algorithm.routerReplay). None: its routers choose."""


def build_experience(
    config: TrainingConfig,
    batch: RolloutBatch,
    *,
    data_parallel: DataParallel,
    kl_controller: KlController | None,
    pad_token_id: int,
    stopwatch: Stopwatch,
) -> TrainingBatch:
    """Compute the log-probabilities and values that the algorithm needs, and the advantages.

    A response whose reward failed keeps its row with an empty mask: the update and the group statistics leave it out.
    Tokens that the rollout correction rejects, of truncated responses (maskTruncatedCompletions) and with an engine's
    log-probability that is not finite are left out of the update alone: advantages are computed before, so that a
    response keeps its reward and its group keeps its members. verl rejects before the advantages.

    The rows of the tensors are S sequences. For rewards and advantages, the sequences of a trajectory are joined to one
    row of B, with one reward at its last token (agent-lightning, agentlightning/verl/rollout_level_advantage.py).
    With rolloutCorrection.bypassMode, the log-probabilities of the engine take the place of the policy's. Rows of the
    first optimizer step have no forward pass for log-probabilities if the update can compute them (old_log_probs.py).
    Raises TrainingError if no token is left to train on, or if too many of the engine's log-probabilities are invalid.
    """
    algorithm = config.algorithm
    sequences, rollout_log_probs = batch.pad(pad_token_id, has_images=config.data.image_key is not None)
    trajectories = batch.trajectories
    scored = sequences.response_mask & ~batch.failed[trajectories.numbers, None]
    joined = trajectories.join(scored)
    engine = EngineLogProbs(rollout_log_probs, scored & rollout_log_probs.isfinite())
    mask = _select_tokens(algorithm, batch, scored, engine.mask)
    own_rows = find_own_rows(config, mask, trajectories.numbers)
    passes = _compute_passes(algorithm, data_parallel, sequences, engine, own_rows, stopwatch)
    with stopwatch.measure("adv"):
        correction = correct_rollouts(config, passes.old_log_probs, engine)
        mask = mask & correction.mask
        if not mask.any():
            raise TrainingError("No data to train on: relax algorithm.rolloutCorrection, which rejects every token.")
        token_rewards, kl_metrics = _place_rewards(algorithm, batch, passes, joined, kl_controller)
        estimated = _estimate(config, batch, token_rewards, joined, passes.values)
    advantages = trajectories.split(estimated.advantages)
    returns = trajectories.split(estimated.returns)
    sequences = replace(sequences, response_mask=mask, routes=passes.routes)
    selection = select_tokens(
        config, advantages, passes.old_log_probs, passes.entropy, mask, trajectories.numbers, consumed=batch.consumed
    )
    experience = _gather(
        algorithm, batch, sequences, advantages, returns, passes, correction.weights, selection, engine
    )
    rewards = torch.where(joined.any(-1), token_rewards.sum(-1), torch.nan)
    metrics = compute_rollout_metrics(sequences, batch, rewards, advantages, config.data.max_response_length)
    if passes.entropy is not None and passes.own_rows is None:  # else the update reports the entropy
        metrics |= compute_pass_metrics(sequences, passes.old_log_probs, passes.entropy, engine) | correction.metrics
    invalid = {"rollout_corr/invalid_log_probs": float((scored & ~engine.mask).count_nonzero())}
    metrics |= invalid | kl_metrics | selection.metrics
    if passes.values is not None:
        metrics |= compute_critic_metrics(passes.values, returns, scored)
    metrics |= batch.scores.metrics() | (compute_source_metrics(batch) if config.data.mixture else {})
    if batch.baselines is not None:
        metrics |= compute_baseline_metrics(batch.baselines, config.rollout.responses_per_prompt)
    mean_advantages = compute_mean_advantages(estimated.advantages, joined)
    return TrainingBatch(experience, engine, rewards, mean_advantages, metrics, passes.entropy, own_rows)


def _compute_passes(
    algorithm: Algorithm,
    data_parallel: DataParallel,
    sequences: Sequences,
    engine: EngineLogProbs,
    own_rows: Tensor | None,
    stopwatch: Stopwatch,
) -> _Passes:
    """Run the forward passes of the train workers that the algorithm needs."""
    entropy: Tensor | None = None
    routes = sequences.routes
    if is_bypassed(algorithm):
        old_log_probs = engine.fill(torch.zeros(sequences.responses.shape))
    elif own_rows is not None and own_rows.all():
        old_log_probs = entropy = torch.zeros(sequences.responses.shape)
    else:
        with stopwatch.measure("old_log_prob"):
            records = algorithm.router_replay == "R2"
            old_log_probs, entropy, routes = compute_log_probs(data_parallel, sequences, own_rows, records=records)
    sequences = replace(sequences, routes=None)  # other models have their own routers
    ref_log_probs = values = teacher_log_probs = teacher_ids = None
    if algorithm.kl_loss_coef > 0 or algorithm.kl_in_reward:
        with stopwatch.measure("ref"):
            (ref_log_probs,) = data_parallel.compute(TrainWorker.ref_log_probs, sequences)
    if algorithm.distillation:
        with stopwatch.measure("teacher"):
            teacher_log_probs, *others = data_parallel.compute(TrainWorker.teacher_log_probs, sequences)
        teacher_ids = others[0] if others else None
    if algorithm.critic:
        with stopwatch.measure("values"):
            (values,) = data_parallel.compute(TrainWorker.values, sequences)
    return _Passes(own_rows, old_log_probs, entropy, ref_log_probs, teacher_log_probs, teacher_ids, values, routes)


def _select_tokens(algorithm: Algorithm, batch: RolloutBatch, scored: Tensor, finite: Tensor) -> Tensor:
    """Leave out invalid and truncated tokens: [S, T]. `finite` [S, T]: the valid tokens of `scored`.

    Raises TrainingError if no token is left, or if too many are invalid.
    """
    if not scored.any():
        raise TrainingError("No data to train on: no response of the batch has both a token and a score.")
    check_engine_log_probs(scored & ~finite, scored)
    if not algorithm.mask_truncated_completions:
        return finite
    mask = finite & ~find_truncated(batch)[:, None]
    if not mask.any():
        raise TrainingError(
            "No data to train on: all responses have the maximum length, and algorithm.maskTruncatedCompletions "
            "leaves them out. Increase data.maxResponseLength, or remove maskTruncatedCompletions."
        )
    return mask


def _place_rewards(
    algorithm: Algorithm, batch: RolloutBatch, passes: _Passes, joined: Tensor, kl_controller: KlController | None
) -> tuple[Tensor, dict[str, float]]:
    """The rewards of tokens [B, T], less the KL term with a controller, and its metrics."""
    token_rewards = place_at_last_token(batch.scores.total + batch.penalties, joined)
    if kl_controller is None:
        return token_rewards, {}
    assert passes.ref_log_probs is not None
    old_log_probs = batch.trajectories.join(passes.old_log_probs)
    ref_log_probs = batch.trajectories.join(passes.ref_log_probs)
    return subtract_kl(algorithm, token_rewards, old_log_probs, ref_log_probs, joined, kl_controller)


def _estimate(
    config: TrainingConfig, batch: RolloutBatch, token_rewards: Tensor, joined: Tensor, values: Tensor | None
) -> Advantages:
    """The advantages of `joined` [B, T]: without rejections, so that a response still counts in its group's mean."""
    algorithm = config.algorithm
    return load_estimator(algorithm)(
        AdvantageInputs(
            token_rewards,
            joined,
            compute_group_numbers(len(joined), config.rollout.responses_per_prompt),
            values=None if values is None else batch.trajectories.join(values),
            baselines=batch.baselines,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
            norm_by_std=algorithm.norm_adv_by_std_in_grpo,
            convention=algorithm.convention,
        )
    )


def _gather(
    algorithm: Algorithm,
    batch: RolloutBatch,
    sequences: Sequences,
    advantages: Tensor,
    returns: Tensor,
    passes: _Passes,
    weights: Tensor | None,
    selection: TokenSelection,
    engine: EngineLogProbs,
) -> Experience:
    """What the update reads."""
    weights = selection.apply(weights)
    return Experience(
        sequences,
        passes.old_log_probs,
        advantages,
        ref_log_probs=passes.ref_log_probs if algorithm.kl_loss_coef > 0 else None,
        weights=weights,
        selected=selection.by_covariance,
        own_pass=passes.own_rows,
        rollout_log_probs=None if passes.own_rows is None or weights is None else engine.fill(passes.old_log_probs),
        values=passes.values,
        returns=None if passes.values is None else returns,
        teacher_log_probs=passes.teacher_log_probs,
        teacher_ids=passes.teacher_ids,
        trajectories=None if batch.trajectories.are_single else batch.trajectories.numbers,
    )


def compute_mean_advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    """Mean of the advantages [B, T] over the tokens of `mask` [B, T]: [B]. NaN without tokens."""
    return torch.where(mask, advantages, 0.0).sum(-1) / mask.sum(-1)


def check_engine_log_probs(invalid: Tensor, mask: Tensor) -> None:
    """Warn about tokens [B, T] whose log-probability in the engine is not finite.

    Raises TrainingError if they are more than MAX_INVALID_SHARE of `mask`'s tokens [B, T].
    """
    count = int(invalid.count_nonzero())
    tokens = int(mask.count_nonzero())
    if count > MAX_INVALID_SHARE * tokens:
        raise TrainingError(
            f"The rollout engine returned log-probabilities that are not finite for {count} of {tokens} tokens. The "
            "weights or the engine's kernels overflow: lower training.learningRate, or use model.dtype: float32."
        )
    if count:
        _log.warning("left %s of %s tokens out: the engine's log-probability is not finite", count, tokens)


def find_truncated(batch: RolloutBatch) -> Tensor:
    """Return which sequences were cut at the maximum length: [S], bool."""
    return torch.tensor([each.finish_reason == "length" for response in batch.responses for each in response.sequences])


def compute_baseline_metrics(baselines: Tensor, n: int) -> dict[str, float]:
    """Count greedy responses whose reward failed. `baselines` [B] has each of them `n` times."""
    return {"reward/failed_baselines": float(baselines.isnan().sum()) / n}


def subtract_kl(
    algorithm: Algorithm,
    token_rewards: Tensor,
    log_probs: Tensor,
    ref_log_probs: Tensor,
    mask: Tensor,
    controller: KlController,
) -> tuple[Tensor, dict[str, float]]:
    """Subtract the KL term of algorithm.klInReward from the rewards [B, T], and update the controller.

    Returns the rewards and the metrics of the KL term.
    """
    assert algorithm.kl_in_reward is not None
    coefficient = controller.coefficient
    result = apply_kl_penalty(
        token_rewards,
        log_probs=log_probs,
        ref_log_probs=ref_log_probs,
        mask=mask,
        coefficient=coefficient,
        estimator=algorithm.kl_in_reward.estimator,
        convention=algorithm.convention,
    )
    controller.update(result.kl, len(mask))
    metrics = {"actor/reward_kl_penalty": result.kl, "actor/reward_kl_penalty_coeff": coefficient}
    return result.token_rewards, metrics


def load_estimator(algorithm: Algorithm) -> Estimator:
    """Return the estimator of algorithm.advEstimator, or the user-defined one.

    Raises ValueError if a user-defined function cannot be imported.
    """
    if function := algorithm.advantage_function:
        return load_user_function(function, field="algorithm.advantageFunction")
    return ESTIMATORS[algorithm.adv_estimator]
