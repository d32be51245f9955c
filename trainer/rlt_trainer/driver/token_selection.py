"""The tokens of a batch that the policy loss treats differently: by their entropy, and by their covariance.

Both are selected on the driver over a mini-batch of all ranks, so that no split of the batch changes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.covariance import Choice, choose_between, choose_highest, select_by_covariance
from rlt_trainer.algorithms.top_entropy import select_top_entropy
from rlt_trainer.driver.old_log_probs import find_mini_batches, selects_by_covariance


@dataclass(frozen=True)
class TokenSelection:
    """Selected tokens [S, T], bool. None: the algorithm does not select."""

    by_entropy: Tensor | None
    """The tokens whose loss counts."""
    by_covariance: Tensor | None
    """The tokens that policyLoss clip_cov leaves out, or for which kl_cov adds the distance from the old policy."""
    metrics: dict[str, float]

    def apply(self, weights: Tensor | None) -> Tensor | None:
        """Return the weights [S, T], 0 for tokens with a lower entropy."""
        if self.by_entropy is None:
            return weights
        chosen = self.by_entropy.to(torch.float32)
        return chosen if weights is None else weights * chosen


def select_tokens(
    config: TrainingConfig,
    advantages: Tensor,
    log_probs: Tensor,
    entropy: Tensor | None,
    mask: Tensor,
    trajectories: Tensor,
    *,
    consumed: int,
) -> TokenSelection:
    """Select from the tokens of `mask` [S, T].

    advantages, log_probs, entropy: [S, T], under the policy at the start of the step; trajectories: [S], the trajectory
    of each row; consumed: the number of prompts up to this batch, which with the seed determines random numbers.
    """
    algorithm = config.algorithm
    groups = find_mini_batches(config, trajectories)
    by_entropy = by_covariance = None
    metrics: dict[str, float] = {}
    if algorithm.top_entropy_quantile < 1:
        assert entropy is not None
        by_entropy, thresholds = select_top_entropy(entropy, mask, groups, algorithm.top_entropy_quantile)
        metrics = {"actor/top_entropy_threshold": float(thresholds.mean())}
    if selects_by_covariance(algorithm):
        share = algorithm.kl_cov_ratio
        choose: Choice = choose_highest
        if algorithm.policy_loss == "clip_cov":
            share = algorithm.clip_cov_ratio
            keys = np.random.default_rng([config.training.seed, consumed])
            choose = choose_between(algorithm.clip_cov_lb, algorithm.clip_cov_ub, keys)
        by_covariance = select_by_covariance(advantages, log_probs, mask, groups, share, choose)
    return TokenSelection(by_entropy, by_covariance, metrics)
