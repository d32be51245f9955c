"""Prompts and responses in padded tensors, and what is learned from them. These values travel between processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TokenIds = Sequence[int]


@dataclass(frozen=True)
class Sequences:
    """B prompts, padded on the left to P tokens, and their responses, padded on the right to T tokens."""

    prompts: Tensor
    """[B, P], int64"""
    prompt_mask: Tensor
    """[B, P], bool: False is padding"""
    responses: Tensor
    """[B, T], int64"""
    response_mask: Tensor
    """[B, T], bool"""

    @classmethod
    def pad(cls, prompts: Sequence[TokenIds], responses: Sequence[TokenIds], *, pad_token_id: int) -> Sequences:
        """From lists of tokens."""
        left = [list(reversed(prompt)) for prompt in prompts]
        prompt_ids, prompt_mask = _pad_right(left, pad_token_id)
        response_ids, response_mask = _pad_right(responses, pad_token_id)
        return cls(prompt_ids.flip(-1), prompt_mask.flip(-1), response_ids, response_mask)

    def __len__(self) -> int:
        return len(self.prompts)

    def rows(self, rows: slice) -> Sequences:
        """Some of them, at the same width."""
        return Sequences(self.prompts[rows], self.prompt_mask[rows], self.responses[rows], self.response_mask[rows])

    def to(self, device: torch.device) -> Sequences:
        """The same on another device."""
        return Sequences(
            self.prompts.to(device),
            self.prompt_mask.to(device),
            self.responses.to(device),
            self.response_mask.to(device),
        )


@dataclass(frozen=True)
class Experience:
    """What a policy update learns from."""

    sequences: Sequences
    old_log_probs: Tensor
    """[B, T], float32: under the policy that the step began with."""
    ref_log_probs: Tensor | None
    """[B, T], float32: under the reference. None without a KL term."""
    advantages: Tensor
    """[B, T], float32"""

    def __len__(self) -> int:
        return len(self.sequences)

    def rows(self, rows: slice) -> Experience:
        """Some of them."""
        reference = None if self.ref_log_probs is None else self.ref_log_probs[rows]
        return Experience(self.sequences.rows(rows), self.old_log_probs[rows], reference, self.advantages[rows])

    def to(self, device: torch.device) -> Experience:
        """The same on another device."""
        reference = None if self.ref_log_probs is None else self.ref_log_probs.to(device)
        return Experience(
            self.sequences.to(device), self.old_log_probs.to(device), reference, self.advantages.to(device)
        )


@dataclass(frozen=True)
class MiniBatch:
    """One rank's part of one optimizer step."""

    experience: Experience
    total_tokens: int
    """Response tokens of the whole mini-batch, over all ranks."""
    total_sequences: int
    """Responses of the whole mini-batch, over all ranks."""


def shares(rows: int, parts: int) -> list[slice]:
    """`rows` rows in `parts` equal, contiguous slices."""
    size, rest = divmod(rows, parts)
    assert rest == 0, f"{rows} rows cannot be shared equally by {parts}"
    return [slice(part * size, (part + 1) * size) for part in range(parts)]


def mini_batches(experience: Experience, *, rows: int, ranks: int) -> Iterator[list[MiniBatch]]:
    """The optimizer steps in order, each as the parts of its ranks. `rows` is the size of a mini-batch."""
    for place in shares(len(experience), len(experience) // rows):
        whole = experience.rows(place)
        total_tokens = int(whole.sequences.response_mask.sum())
        yield [MiniBatch(whole.rows(part), total_tokens, rows) for part in shares(rows, ranks)]


def _pad_right(lists: Sequence[TokenIds], pad_token_id: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, lists))
    ids = torch.tensor([[*tokens, *[pad_token_id] * (width - len(tokens))] for tokens in lists])
    lengths = torch.tensor([len(tokens) for tokens in lists])
    return ids, torch.arange(width) < lengths[:, None]
