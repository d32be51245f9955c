"""Advantages per token, from the rewards that follow it. Observation tokens are skipped."""

from __future__ import annotations

import torch
from torch import Tensor

from rlt_trainer.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlt_trainer.algorithms.masking import apply_mask, whiten


def gae(inputs: AdvantageInputs) -> Advantages:
    """Generalized advantage estimation (arXiv 1506.02438), whitened over the batch after the returns are computed.

    delta_t = r_t + gamma V_t+1 - V_t, A_t = delta_t + gamma lambda A_t+1, where t+1 is the next token of the
    policy: observations between two of its turns have no effect (compute_gae_advantage_return in verl 0.9.1).
    """
    assert inputs.values is not None, "gae needs the critic's values"
    rewards = inputs.token_rewards
    values = inputs.values
    mask = inputs.mask
    next_value = next_advantage = torch.zeros_like(rewards[:, 0])
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + inputs.gamma * next_value - values[:, t]
        advantages[:, t] = delta + inputs.gamma * inputs.lam * next_advantage
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        next_advantage = torch.where(mask[:, t], advantages[:, t], next_advantage)
    return Advantages(whiten(advantages, mask), apply_mask(advantages + values, mask))


def reinforce_plus_plus(inputs: AdvantageInputs) -> Advantages:
    """Discounted returns, whitened over all tokens of the batch (REINFORCE++, arXiv 2501.03262)."""
    returns = _compute_returns(inputs.token_rewards, inputs.mask, inputs.gamma)
    return Advantages(whiten(returns, inputs.mask), returns)


def remax(inputs: AdvantageInputs) -> Advantages:
    """Return minus the score of the greedy response to the same prompt (ReMax, arXiv 2310.10505)."""
    assert inputs.baselines is not None, "remax needs the scores of greedy responses"
    returns = _compute_returns(inputs.token_rewards, inputs.mask, gamma=1.0)
    return Advantages(apply_mask(returns - inputs.baselines[:, None], inputs.mask), returns)


def _compute_returns(rewards: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """Return r_t + gamma * (the return of the next token), over the tokens of the mask: [B, T]."""
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        following = torch.where(mask[:, t], rewards[:, t] + gamma * following, following)
        returns[:, t] = following
    return apply_mask(returns, mask)
