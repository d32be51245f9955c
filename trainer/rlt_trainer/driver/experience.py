"""From scored responses to what is learned from: log-probabilities, corrections, values, advantages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import ESTIMATORS, AdvantageInputs, Estimator, rewards_at_end
from rlt_trainer.algorithms.kl_controller import KlController, penalize
from rlt_trainer.algorithms.rollout_correction import correct, mismatch_metrics
from rlt_trainer.algorithms.user_functions import user_function
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.sequences import Experience
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.generation import group_numbers
from rlt_trainer.driver.metrics import critic_metrics, policy_metrics, rollout_metrics
from rlt_trainer.errors import TrainingError
from rlt_trainer.telemetry.stopwatch import Stopwatch


@dataclass(frozen=True)
class TrainingBatch:
    """A step's experience, and what it says of itself."""

    experience: Experience
    rollout_log_probs: Tensor
    """[B, T]: the engine's."""
    rewards: Tensor
    """[B]: what each response was worth in all, KL term included. NaN where a reward failed."""
    metrics: dict[str, float]


def build_experience(
    config: TrainingConfig,
    generated: RolloutBatch,
    *,
    ranks: DataParallel,
    kl_controller: KlController | None,
    pad_token_id: int,
    watch: Stopwatch,
) -> TrainingBatch:
    """Ask the ranks for what the algorithm needs, and take advantages.

    Responses whose reward failed keep their row and lose their mask: nothing is learned from them, and no group's mean
    counts them.
    """
    algorithm = config.algorithm
    sequences, rollout_log_probs = generated.pad(pad_token_id)
    scored = sequences.response_mask & ~generated.failed[:, None]

    with watch.measure("old_log_prob"):
        old_log_probs, entropy = ranks.compute("log_probs", sequences)
    ref_log_probs = values = None
    if algorithm.kl_loss_coef > 0 or algorithm.kl_in_reward:
        with watch.measure("ref"):
            (ref_log_probs,) = ranks.compute("ref_log_probs", sequences)
    if algorithm.critic:
        with watch.measure("values"):
            (values,) = ranks.compute("values", sequences)

    with watch.measure("adv"):
        if not scored.any():
            raise TrainingError("Nothing is left to learn from: no response of the batch has a token and a score.")
        mask, weights, correction = corrected(algorithm, old_log_probs, rollout_log_probs, scored)
        if not mask.any():
            raise TrainingError("Nothing is left to learn from: algorithm.rolloutCorrection rejects every token.")
        token_rewards = rewards_at_end(generated.scores.total + generated.penalties, scored)
        penalty: dict[str, float] = {}
        if kl_controller is not None:
            assert ref_log_probs is not None
            token_rewards, penalty = penalized(
                algorithm, token_rewards, old_log_probs, ref_log_probs, scored, kl_controller
            )
        estimated = estimator(algorithm)(
            AdvantageInputs(
                token_rewards,
                scored,  # what is rejected below still counts in its group's mean
                group_numbers(len(scored), config.rollout.n),
                values=values,
                baselines=generated.baselines,
                gamma=algorithm.gamma,
                lam=algorithm.lam,
                norm_by_std=algorithm.norm_adv_by_std_in_grpo,
                convention=algorithm.convention,
            )
        )

    learned = replace(sequences, response_mask=mask)
    experience = Experience(
        learned,
        old_log_probs,
        estimated.advantages,
        ref_log_probs=ref_log_probs if algorithm.kl_loss_coef > 0 else None,
        weights=weights,
        values=values,
        returns=None if values is None else estimated.returns,
    )
    rewards = torch.where(scored.any(-1), token_rewards.sum(-1), torch.nan)
    metrics: Mapping[str, float] = {
        **rollout_metrics(learned, generated, rewards, estimated.advantages, config.data.max_response_length),
        **policy_metrics(learned, entropy),
        **mismatch_metrics(old_log_probs, rollout_log_probs, scored),
        **correction,
        **penalty,
        **({} if values is None else critic_metrics(values, estimated.returns, scored)),
        **generated.scores.metrics(),
        **({} if generated.baselines is None else failed_baselines(generated.baselines, config.rollout.n)),
    }
    return TrainingBatch(experience, rollout_log_probs, rewards, dict(metrics))


def failed_baselines(baselines: Tensor, n: int) -> dict[str, float]:
    """How many greedy responses could not be scored, of baselines [B] of n responses each."""
    return {"reward/failed_baselines": float(baselines.isnan().sum()) / n}


def penalized(
    algorithm: Algorithm,
    token_rewards: Tensor,
    log_probs: Tensor,
    ref_log_probs: Tensor,
    mask: Tensor,
    controller: KlController,
) -> tuple[Tensor, dict[str, float]]:
    """Rewards [B, T] with the KL term of algorithm.klInReward, its metrics, and the controller told of it."""
    assert algorithm.kl_in_reward is not None
    coefficient = controller.coefficient
    result = penalize(
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


def estimator(algorithm: Algorithm) -> Estimator:
    """Of algorithm.advEstimator, or the user's own. Raises ValueError if that cannot be imported."""
    if own := algorithm.advantage_function:
        return user_function(own, field="algorithm.advantageFunction")
    return ESTIMATORS[algorithm.adv_estimator]


def corrected(
    algorithm: Algorithm, log_probs: Tensor, rollout_log_probs: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor | None, dict[str, float]]:
    """Mask, weights and metrics after algorithm.rolloutCorrection."""
    wanted = algorithm.rollout_correction
    if wanted is None:
        return mask, None, {}
    correction = correct(
        log_probs,
        rollout_log_probs,
        mask,
        level=None if wanted.level == "none" else wanted.level,
        threshold=wanted.threshold,
        lower_threshold=wanted.lower_threshold,
        rejection=wanted.rejection,
        rejection_threshold=wanted.rejection_threshold,
    )
    return correction.mask, correction.weights, correction.metrics
