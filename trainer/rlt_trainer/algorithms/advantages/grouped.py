"""One advantage for a whole response: its score against those of the other responses to the same prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rlt_trainer.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlt_trainer.algorithms.conventions import CONVENTIONS
from rlt_trainer.algorithms.masking import keep, whiten


def grpo(inputs: AdvantageInputs) -> Advantages:
    """(score - mean) / (std + epsilon) within the group, std unbiased (arXiv 2402.03300).

    Without norm_by_std score - mean (Dr. GRPO, arXiv 2503.20783). Equal scores have advantage 0 exactly.
    """
    scores = _Scores.of(inputs)
    advantages = scores.above(scores.mean())
    if inputs.norm_by_std:
        advantages = advantages / (_deviation(scores) + CONVENTIONS[inputs.convention].std_epsilon)
    return _of_responses(advantages, inputs)


def rloo(inputs: AdvantageInputs) -> Advantages:
    """The score minus the mean of the others' (arXiv 2402.14740), which is (score - mean) n / (n - 1)."""
    scores = _Scores.of(inputs)
    others = (scores.size - 1).clamp(min=1)
    return _of_responses(scores.above(scores.mean()) * torch.where(scores.alone, 1, scores.size / others), inputs)


def opo(inputs: AdvantageInputs) -> Advantages:
    """The score minus the group's mean weighted with the responses' lengths (arXiv 2505.23585)."""
    scores = _Scores.of(inputs)
    lengths = inputs.mask.sum(-1).to(scores.shifted.dtype)
    baseline = scores.total(lengths * scores.shifted) / scores.total(lengths).clamp(min=1)
    return _of_responses(scores.above(baseline), inputs)


def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> Advantages:
    """score - mean within the group, then whitened over all tokens of the batch (arXiv 2501.03262)."""
    scores = _Scores.of(inputs)
    per_token = _of_responses(scores.above(scores.mean()), inputs).advantages
    whitened = whiten(per_token, inputs.mask)
    return Advantages(whitened, whitened)


def grpo_passk(inputs: AdvantageInputs) -> Advantages:
    """Only a group's best response has an advantage: how far it is above the second (arXiv 2503.19595).

    norm_by_std divides it by std + epsilon. The best of a group of one has advantage 0.
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
    return _of_responses(advantages, inputs)


@dataclass(frozen=True)
class _Scores:
    """Responses' scores beside their groups': all [B]."""

    shifted: Tensor
    """Score minus the lowest of the group, which makes differences of equal scores 0 without rounding."""
    lone: Tensor
    """The advantage of a response that is its group's only member."""
    member: Tensor
    """bool: has tokens to learn from."""
    index: Tensor
    """The group's number, from 0."""
    size: Tensor
    """Members of the group."""

    @classmethod
    def of(cls, inputs: AdvantageInputs) -> Self:
        scores = inputs.token_rewards.sum(-1)
        member = inputs.mask.any(-1)
        index = torch.unique(inputs.groups, return_inverse=True)[1]
        size = torch.zeros_like(index).index_add(0, index, member.long())[index]
        candidates = scores.masked_fill(~member, torch.inf)
        lowest = torch.full_like(scores, torch.inf).scatter_reduce(0, index, candidates, "amin")[index]
        keeps = CONVENTIONS[inputs.convention].keeps_lone_scores
        lone = scores if keeps else torch.zeros_like(scores)
        return cls(keep(scores - lowest, member), lone, member, index, size)

    @property
    def alone(self) -> Tensor:
        return self.size == 1

    def total(self, values: Tensor) -> Tensor:
        """The sum of `values` [B] over each one's group: [B]."""
        return torch.zeros_like(values).index_add(0, self.index, keep(values, self.member))[self.index]

    def mean(self) -> Tensor:
        return self.total(self.shifted) / self.size.clamp(min=1)

    def above(self, baseline: Tensor) -> Tensor:
        """Scores minus a baseline in terms of `shifted`."""
        return torch.where(self.alone, self.lone, self.shifted - baseline)


def _deviation(scores: _Scores) -> Tensor:
    """The unbiased standard deviation within each one's group: [B], 1 for a response without others."""
    squares = scores.total((scores.shifted - scores.mean()).square())
    return torch.where(scores.alone, 1, (squares / (scores.size - 1).clamp(min=1)).sqrt())


def _of_responses(advantages: Tensor, inputs: AdvantageInputs) -> Advantages:
    """The same advantage for every token of a response. advantages: [B]"""
    per_token = keep(advantages[:, None].expand(inputs.mask.shape), inputs.mask)
    return Advantages(per_token, per_token)
