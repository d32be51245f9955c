"""The loss of the policy: its terms and their coefficients from the config."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlt_api.blocks.algorithm import Algorithm, Distillation
from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.losses import (
    POLICY_LOSSES,
    LossInputs,
    TokenLoss,
    distillation_advantages,
    forward_kl_topk,
    kl_loss,
)
from rlt_trainer.algorithms.masking import masked_sum
from rlt_trainer.algorithms.rollout_correction import compute_weights, is_bypassed
from rlt_trainer.algorithms.user_functions import load_user_function
from rlt_trainer.batches.sequences import Experience


class PolicyObjective:
    """Policy loss, minus the entropy bonus, plus the KL term and the distillation loss."""

    def __init__(self, algorithm: Algorithm, *, max_response_length: int) -> None:
        """max_response_length: the divisor of seq-mean-token-sum-norm, in tokens."""
        self._algorithm = algorithm
        function = algorithm.policy_loss_function
        field = "algorithm.policyLossFunction"
        self._loss_function = (
            load_user_function(function, field=field) if function else POLICY_LOSSES[algorithm.policy_loss]
        )
        self._max_response_length = max_response_length

    def compute_share(
        self,
        log_probs: Tensor,
        entropy: Tensor,
        micro: Experience,
        *,
        total_tokens: int,
        total_sequences: int,
        top_log_probs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute a micro-batch's share of the loss and the metrics of its mini-batch.

        log_probs, entropy: [B, T], with gradient; top_log_probs: [B, T, K], of the tokens micro.teacher_ids.
        """
        algorithm = self._algorithm
        mask = micro.sequences.response_mask

        def aggregated(values: Tensor) -> Tensor:
            return aggregate(
                values,
                mask,
                algorithm.loss_agg_mode,
                total_tokens=total_tokens,
                total_sequences=total_sequences,
                loss_scale_factor=self._max_response_length,
            )

        inputs = self._build_inputs(log_probs, micro)
        policy = self._loss_function(inputs)
        loss = aggregated(policy.loss)
        tokens = max(total_tokens, 1)
        shares = {"actor/pg_loss": loss.detach()}
        if algorithm.distillation is not None and not algorithm.distillation.use_task_rewards:
            loss = torch.zeros_like(loss)
        shares |= {name: masked_sum(value, mask) / tokens for name, value in policy.metrics.items()}
        if is_bypassed(algorithm):  # no other pass has computed it
            shares["actor/entropy"] = masked_sum(entropy.detach(), mask) / tokens
        if algorithm.entropy_coeff > 0:
            bonus = aggregated(entropy)
            loss = loss - algorithm.entropy_coeff * bonus
            shares["actor/entropy_loss"] = bonus.detach()
        if algorithm.kl_loss_coef > 0:
            assert micro.ref_log_probs is not None
            kl = aggregated(kl_loss(inputs, micro.ref_log_probs, algorithm.kl_loss_type))
            loss = loss + algorithm.kl_loss_coef * kl
            shares["actor/kl_loss"] = kl.detach()
        if distillation := algorithm.distillation:
            divergence = self._distill(distillation, inputs, micro.teacher_log_probs, top_log_probs)
            distilled = aggregated(divergence.loss)
            loss = loss + distillation.loss_coef * distilled
            shares["distillation/loss"] = distilled.detach()
            shares |= {name: masked_sum(value, mask) / tokens for name, value in divergence.metrics.items()}
        return loss, shares

    def _distill(
        self,
        distillation: Distillation,
        inputs: LossInputs,
        teacher_log_probs: Tensor | None,
        top_log_probs: Tensor | None,
    ) -> TokenLoss:
        assert teacher_log_probs is not None
        bound = distillation.loss_max_clamp
        if distillation.loss_mode == "forward_kl_topk":
            assert top_log_probs is not None
            minimum = distillation.log_prob_min_clamp
            return forward_kl_topk(top_log_probs, teacher_log_probs, inputs.mask, max_clamp=bound, min_log_prob=minimum)
        advantages = distillation_advantages(inputs.log_probs, teacher_log_probs, inputs.mask, max_clamp=bound)
        loss = self._loss_function(replace(inputs, advantages=advantages)).loss
        return TokenLoss(loss, {"distillation/abs_loss": advantages.abs()})

    def _build_inputs(self, log_probs: Tensor, micro: Experience) -> LossInputs:
        algorithm = self._algorithm
        old_log_probs, weights = self._find_start(log_probs.detach(), micro)
        return LossInputs(
            log_probs,
            old_log_probs,
            micro.advantages,
            micro.sequences.response_mask,
            weights=weights,
            is_selected=micro.selected,
            clip_ratio_low=algorithm.clip_ratio_low or algorithm.clip_ratio,
            clip_ratio_high=algorithm.clip_ratio_high or algorithm.clip_ratio,
            clip_ratio_c=algorithm.clip_ratio_c,
            tau_pos=algorithm.tau_pos,
            tau_neg=algorithm.tau_neg,
            ppo_kl_coef=algorithm.ppo_kl_coef,
            convention=algorithm.convention,
        )

    def _find_start(self, log_probs: Tensor, micro: Experience) -> tuple[Tensor, Tensor | None]:
        """Return old log-probabilities and weights [B, T]. In the rows of the own pass they follow from `log_probs`."""
        if micro.own_pass is None:
            return micro.old_log_probs, micro.weights
        is_own = micro.own_pass[:, None]
        old_log_probs = torch.where(is_own, log_probs, micro.old_log_probs)
        if micro.rollout_log_probs is None or micro.weights is None:
            return old_log_probs, None
        correction = self._algorithm.rollout_correction
        assert correction is not None
        weights = compute_weights(log_probs, micro.rollout_log_probs, micro.sequences.response_mask, correction)
        assert weights is not None
        return old_log_probs, torch.where(is_own, weights, micro.weights)
