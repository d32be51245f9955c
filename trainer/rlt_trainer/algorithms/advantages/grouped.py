"""One advantage per response: its score relative to the other responses to the same prompt (its group)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rlt_trainer.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlt_trainer.algorithms.conventions import CONVENTIONS
from rlt_trainer.algorithms.masking import apply_mask, whiten


def grpo(inputs: AdvantageInputs) -> Advantages:
    """(score - mean) / (std + epsilon) within the group, std unbiased (arXiv 2402.03300).

    Without norm_by_std: score - mean (Dr. GRPO, arXiv 2503.20783). Equal scores have advantage 0 exactly.
    """
    scores = _Scores.of(inputs)
    advantages = scores.minus(scores.mean())
    if inputs.norm_by_std:
        advantages = advantages / (_deviation(scores) + CONVENTIONS[inputs.convention].std_epsilon)
    return _expand(advantages, inputs)


def rloo(inputs: AdvantageInputs) -> Advantages:
    """Score minus the mean of the others' scores (arXiv 2402.14740), which is (score - mean) n / (n - 1)."""
    scores = _Scores.of(inputs)
    others = (scores.size - 1).clamp(min=1)
    return _expand(scores.minus(scores.mean()) * torch.where(scores.alone, 1, scores.size / others), inputs)


def opo(inputs: AdvantageInputs) -> Advantages:
    """Score minus the group's mean score, weighted by the responses' lengths (arXiv 2505.23585)."""
    scores = _Scores.of(inputs)
    lengths = inputs.mask.sum(-1).to(scores.shifted.dtype)
    baseline = scores.total(lengths * scores.shifted) / scores.total(lengths).clamp(min=1)
    return _expand(scores.minus(baseline), inputs)


def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> Advantages:
    """score - mean within the group, then whitened over all tokens of the batch (arXiv 2501.03262)."""
    scores = _Scores.of(inputs)
    per_token = _expand(scores.minus(scores.mean()), inputs).advantages
    whitened = whiten(per_token, inputs.mask)
    return Advantages(whitened, whitened)


def grpo_passk(inputs: AdvantageInputs) -> Advantages:
    """Only the best response of a group has an advantage: its score minus the second best (arXiv 2503.19595).

    With norm_by_std it is divided by std + epsilon. The only response of its group has advantage 0.
    """
    scores = _Scores.of(inputs)
    advantages = torch.zeros_like(scores.shifted)
    for group in torch.unique(scores.index[scores.member]):
        rows = ((scores.index == group) & scores.member).nonzero().squeeze(-1)
        if len(rows) > 1:
            best, second = scores.shifted[rows].topk(2).values
            advantages[rows[scores.shifted[rows].argmax()]] = best - second
    if inputs.norm_by_std:
        advantages = advantages / (_deviation(scores) + CONVENTIONS[inputs.convention].std_epsilon)
    return _expand(advantages, inputs)


@dataclass(frozen=True)
class _Scores:
    """Scores of responses and statistics of their groups: all [B]."""

    shifted: Tensor
    """Score minus the lowest score of the group, so that differences of equal scores are exactly 0."""
    lone: Tensor
    """The advantage of a response that is alone in its group: 0 if the rewards of the others failed."""
    member: Tensor
    """bool: whether the response has tokens in the mask."""
    index: Tensor
    """Index of the group, from 0."""
    size: Tensor
    """Number of members of the group."""

    @classmethod
    def of(cls, inputs: AdvantageInputs) -> Self:
        scores = inputs.token_rewards.sum(-1)
        member = inputs.mask.any(-1)
        index = torch.unique(inputs.groups, return_inverse=True)[1]
        size = torch.zeros_like(index).index_add(0, index, member.long())[index]
        candidates = scores.masked_fill(~member, torch.inf)
        lowest = torch.full_like(scores, torch.inf).scatter_reduce(0, index, candidates, "amin")[index]
        single = torch.bincount(index)[index] == 1  # one response to the prompt, not one whose siblings' rewards failed
        lone = apply_mask(scores, single & CONVENTIONS[inputs.convention].lone_score_is_advantage)
        return cls(apply_mask(scores - lowest, member), lone, member, index, size)

    @property
    def alone(self) -> Tensor:
        return self.size == 1

    def total(self, values: Tensor) -> Tensor:
        """Sum of `values` [B] over the group of each response: [B]."""
        return torch.zeros_like(values).index_add(0, self.index, apply_mask(values, self.member))[self.index]

    def mean(self) -> Tensor:
        return self.total(self.shifted) / self.size.clamp(min=1)

    def minus(self, baseline: Tensor) -> Tensor:
        """Scores minus `baseline` [B], which is relative to `shifted`."""
        return torch.where(self.alone, self.lone, self.shifted - baseline)


def _deviation(scores: _Scores) -> Tensor:
    """Unbiased standard deviation within the group of each response: [B], 1 for a response alone in its group."""
    squares = scores.total((scores.shifted - scores.mean()).square())
    return torch.where(scores.alone, 1, (squares / (scores.size - 1).clamp(min=1)).sqrt())


def _expand(advantages: Tensor, inputs: AdvantageInputs) -> Advantages:
    """Give every token the advantage of its response. advantages: [B]"""
    per_token = apply_mask(advantages[:, None].expand(inputs.mask.shape), inputs.mask)
    return Advantages(per_token, per_token)
