"""Prompts and responses in padded tensors, and what is learned from them. These values travel between processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from rlt_trainer.batches.balance import balanced_parts

TokenIds = Sequence[int]


class Rows:
    """Tensors with one row for each response, which are cut and moved together."""

    def rows(self, rows: slice | Tensor) -> Self:
        """Some of them, at the same width."""
        return self._each(lambda part: part.rows(rows) if isinstance(part, Rows) else part[rows])

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Any], Any]) -> Self:
        assert is_dataclass(self)
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: change(part) for name, part in parts.items() if part is not None})


@dataclass(frozen=True)
class Sequences(Rows):
    """B prompts, padded on the left to P tokens, and their responses, padded on the right to T tokens."""

    prompts: Tensor
    """[B, P], int64"""
    prompt_mask: Tensor
    """[B, P], bool: False is padding"""
    responses: Tensor
    """[B, T], int64"""
    response_attention: Tensor
    """[B, T], bool: False is padding"""
    response_mask: Tensor
    """[B, T], bool: the tokens that the policy chose and learns from. An environment's observations are not."""

    @classmethod
    def pad(
        cls,
        prompts: Sequence[TokenIds],
        responses: Sequence[TokenIds],
        *,
        pad_token_id: int,
        chosen: Sequence[Sequence[bool]] | None = None,
    ) -> Self:
        """From lists of tokens. `chosen` says of each response token whether the policy chose it; default: all."""
        left = [list(reversed(prompt)) for prompt in prompts]
        prompt_ids, prompt_mask = _pad_right(left, pad_token_id)
        response_ids, attention = _pad_right(responses, pad_token_id)
        mask = attention if chosen is None else _pad_right(chosen, 0)[0].bool()
        return cls(prompt_ids.flip(-1), prompt_mask.flip(-1), response_ids, attention, mask)

    def __len__(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True)
class Experience(Rows):
    """What an update learns from."""

    sequences: Sequences
    old_log_probs: Tensor
    """[B, T], float32: under the policy that the step began with."""
    advantages: Tensor
    """[B, T], float32"""
    ref_log_probs: Tensor | None = None
    """[B, T], float32: under the reference. None without a KL term in the loss."""
    weights: Tensor | None = None
    """[B, T], float32: what each token's loss is multiplied by (rollout correction). None: 1."""
    values: Tensor | None = None
    """[B, T], float32: the critic's, when the step began. None without a critic."""
    returns: Tensor | None = None
    """[B, T], float32: what the critic learns to say. None without a critic."""

    def __len__(self) -> int:
        return len(self.sequences)


@dataclass(frozen=True)
class MiniBatch:
    """One rank's part of one optimizer step."""

    experience: Experience
    total_tokens: int
    """Response tokens of the whole mini-batch, over all ranks."""
    total_sequences: int
    """Responses of the whole mini-batch that have such tokens, over all ranks."""


def balanced_shares(sequences: Sequences, shares: int) -> list[Tensor]:
    """Row numbers of each share: equally many rows, in ascending order, and about equally many tokens."""
    lengths = (sequences.prompt_mask.sum(-1) + sequences.response_attention.sum(-1)).tolist()
    return [torch.tensor(rows) for rows in balanced_parts(lengths, shares, equal=True)]


def mini_batches(experience: Experience, *, rows: int, shares: int) -> Iterator[list[MiniBatch]]:
    """The optimizer steps in order, each as its shares. `rows` is the size of a mini-batch.

    A response without a token to learn from, one whose reward failed for instance, is not counted. A mini-batch of such
    responses alone is left out: AdamW would take a step without a gradient.
    """
    for start in range(0, len(experience), rows):
        whole = experience.rows(slice(start, start + rows))
        mask = whole.sequences.response_mask
        tokens, sequences = int(mask.sum()), int(mask.any(-1).sum())
        if tokens == 0:
            continue
        parts = balanced_shares(whole.sequences, shares)
        yield [MiniBatch(whole.rows(part), tokens, sequences) for part in parts]


def _pad_right(lists: Sequence[TokenIds], pad_token_id: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, lists))
    ids = torch.tensor([[*tokens, *[pad_token_id] * (width - len(tokens))] for tokens in lists])
    lengths = torch.tensor([len(tokens) for tokens in lists])
    return ids, torch.arange(width) < lengths[:, None]
