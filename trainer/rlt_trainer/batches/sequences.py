"""Prompts, responses and experience as padded tensors. They are sent between the driver and the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlt_trainer.batches.balance import Cost, balance_parts
from rlt_trainer.batches.ragged import build_mask, count_rows, flatten_rows, pad_rows, split_rows
from rlt_trainer.batches.routes import Routes, flatten_routes, pad_routes

TokenIds = Sequence[int]
TokenValues = NDArray[Any]
"""A value for each token of some responses, one response after the other: [N], or [N, K] for K values."""


class Rows:
    """Tensors with one row for each response, which are indexed and moved together."""

    def rows(self, rows: slice | Tensor) -> Self:
        """Select rows. The width stays the same."""
        return self._each(lambda part: part.rows(rows) if isinstance(part, Rows) else part[rows])

    def to(self, device: torch.device) -> Self:
        """Copy all tensors to the device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Any], Any]) -> Self:
        assert is_dataclass(self)
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: change(part) for name, part in parts.items() if part is not None})


@dataclass(frozen=True)
class RowImages(Rows):
    """The encoded images of each prompt. They are decoded where they are used: pixels are much larger."""

    images: tuple[tuple[bytes, ...], ...]
    """[B]"""

    def rows(self, rows: slice | Tensor) -> Self:
        """Select rows."""
        numbers: list[int] = torch.arange(len(self.images))[rows].tolist()
        return replace(self, images=tuple(self.images[number] for number in numbers))

    def to(self, device: torch.device) -> Self:
        """Return the images themselves."""
        return self

    def flatten(self) -> list[bytes]:
        """Return the images of all rows, in order."""
        return [image for row in self.images for image in row]


@dataclass(frozen=True)
class RowLengths(Rows):
    """The lengths of prompts and responses, which stay on the host when tensors move to a device."""

    prompts: tuple[int, ...]
    """[B]"""
    responses: tuple[int, ...]
    """[B], including observations."""

    def rows(self, rows: slice | Tensor) -> Self:
        """Select rows."""
        numbers: list[int] = torch.arange(len(self.prompts))[rows].tolist()
        prompts = tuple(self.prompts[number] for number in numbers)
        return replace(self, prompts=prompts, responses=tuple(self.responses[number] for number in numbers))

    def to(self, device: torch.device) -> Self:
        """Return the lengths themselves."""
        return self


@dataclass(frozen=True)
class Sequences(Rows):
    """B prompts, padded on the left to P tokens, and their responses, padded on the right to T tokens."""

    prompts: Tensor
    """[B, P], int32"""
    prompt_mask: Tensor
    """[B, P], bool: False is padding"""
    responses: Tensor
    """[B, T], int32"""
    response_attention: Tensor
    """[B, T], bool: False is padding"""
    response_mask: Tensor
    """[B, T], bool: the tokens that the policy sampled and trains on. False for an environment's observations."""
    images: RowImages | None = None
    """The images of the prompts. None: no prompt of the run has images (data.imageKey)."""
    lengths: RowLengths | None = None
    """Known after `to`, so that a device is not asked for them. None: not counted."""
    routes: Tensor | None = None
    """[B, P + T, L, k], uint8 or int16: the experts of each token (routes.py). None: the policy's routers choose."""

    def to(self, device: torch.device) -> Self:
        """Copy all tensors to the device, after the lengths are counted."""
        counted = replace(self, lengths=self.count_lengths())
        return counted._each(lambda part: part.to(device))

    def count_lengths(self) -> RowLengths:
        """Return the lengths. The tensors must be on the CPU, unless `lengths` is known."""
        if self.lengths is not None:
            return self.lengths
        return RowLengths(tuple(count_rows(self.prompt_mask)), tuple(self.response_lengths()))

    @classmethod
    def pad(
        cls,
        prompts: Sequence[TokenIds],
        responses: Sequence[TokenIds],
        *,
        pad_token_id: int,
        chosen: Sequence[Sequence[bool]] | None = None,
        images: Sequence[tuple[bytes, ...]] | None = None,
    ) -> Self:
        """Pad lists of tokens. `chosen`: whether the policy sampled each response token. Default: all True.
        `images`: each prompt's."""
        prompt_lengths = [len(each) for each in prompts]
        lengths = [len(each) for each in responses]
        prompt_width = max(prompt_lengths)
        width = max(lengths)
        attention = build_mask(lengths, width=width)
        return cls(
            pad_rows(prompts, np.int32, fill=pad_token_id, width=prompt_width, left=True),
            build_mask(prompt_lengths, width=prompt_width, left=True),
            pad_rows(responses, np.int32, fill=pad_token_id, width=width),
            attention,
            attention if chosen is None else pad_rows(chosen, np.bool_, width=width),
            None if images is None else RowImages(tuple(images)),
        )

    def clear(self, rows: Tensor) -> Self:
        """Leave the rows [B], bool, without tokens to train on."""
        return replace(self, response_mask=self.response_mask & ~rows[:, None])

    def __len__(self) -> int:
        return len(self.prompts)

    def response_lengths(self) -> list[int]:
        """Count the tokens of each response, with observations."""
        return count_rows(self.response_attention)

    def token_counts(self, *, padded: bool = False) -> list[int]:
        """Count the tokens of each prompt with its response, and of its padding if `padded`."""
        if padded:
            return [self.prompts.shape[1] + self.responses.shape[1]] * len(self)
        counts = zip(count_rows(self.prompt_mask), self.response_lengths(), strict=True)
        return [prompt + response for prompt, response in counts]

    def append(self, other: Self) -> Self:
        """Return the rows of both, which have the same widths, no images and no routes."""
        return replace(
            self,
            prompts=torch.cat([self.prompts, other.prompts]),
            prompt_mask=torch.cat([self.prompt_mask, other.prompt_mask]),
            responses=torch.cat([self.responses, other.responses]),
            response_attention=torch.cat([self.response_attention, other.response_attention]),
            response_mask=torch.cat([self.response_mask, other.response_mask]),
            lengths=None,
        )

    def flatten(self, values: Tensor) -> TokenValues:
        """Return the values of the responses' tokens without padding: from [B, T] to [N], or [B, T, K] to [N, K]."""
        return flatten_rows(values, self.response_lengths())

    def with_routes(self, rows: Sequence[Routes | None]) -> Self:
        """Add the routes of the first tokens of each prompt with its response. The routers choose for the others."""
        prompts = count_rows(self.prompt_mask)
        padded = pad_routes(rows, prompts, prompt_width=self.prompts.shape[1], width=self.responses.shape[1])
        return replace(self, routes=padded)

    def flatten_routes(self, routes: Tensor) -> Routes:
        """Return the routes of all tokens without padding: from [B, P + T, L, k] to [N, L, k]."""
        prompts = count_rows(self.prompt_mask)
        return flatten_routes(routes, prompts, self.response_lengths(), prompt_width=self.prompts.shape[1])

    def __reduce__(self) -> tuple[Any, ...]:
        """Send values without padding to other processes. Padding gets the token 0 there, which no mask contains."""
        prompt_lengths = count_rows(self.prompt_mask)
        lengths = self.response_lengths()
        prompts = prompt_lengths, self.prompts.shape[1], flatten_rows(self.prompts.int(), prompt_lengths, left=True)
        responses = lengths, self.responses.shape[1], flatten_rows(self.responses.int(), lengths)
        routes = None if self.routes is None else self.flatten_routes(self.routes)
        return _build_sequences, (*prompts, *responses, flatten_rows(self.response_mask, lengths), self.images, routes)


@dataclass(frozen=True)
class Experience(Rows):
    """The input of an update."""

    sequences: Sequences
    old_log_probs: Tensor
    """[B, T], float32: under the policy at the start of the step. 0 in the rows of `own_pass`."""
    advantages: Tensor
    """[B, T], float32"""
    ref_log_probs: Tensor | None = None
    """[B, T], float32: under the reference. None: no KL term in the loss."""
    weights: Tensor | None = None
    """[B, T], float32: factor of each token's loss (rollout correction, topEntropyQuantile). None: 1. Without meaning
    in the rows of `own_pass`."""
    values: Tensor | None = None
    """[B, T], float32: the critic's values at the start of the step. None: no critic."""
    returns: Tensor | None = None
    """[B, T], float32: the critic's targets. None: no critic."""
    teacher_log_probs: Tensor | None = None
    """[B, T], float32: under the teacher. With `teacher_ids` [B, T, K]: theirs. None: no distillation."""
    teacher_ids: Tensor | None = None
    """[B, T, K], int32: the most likely tokens of the teacher. None: another loss than forward_kl_topk."""
    trajectories: Tensor | None = None
    """[B], int64, ascending: the trajectory of each row. None: each row is one."""
    own_pass: Tensor | None = None
    """[B], bool: the rows whose old log-probabilities and weights the update computes in its own pass, because it is
    the first optimizer step of their policy. None: no row."""
    rollout_log_probs: Tensor | None = None
    """[B, T], float32: of the engine, finite, for the weights of `own_pass`. None: it has no weights."""
    selected: Tensor | None = None
    """[B, T], bool: the tokens that policyLoss clip_cov or kl_cov selects. None: another loss."""

    def __len__(self) -> int:
        return len(self.sequences)

    def clear(self, rows: Tensor) -> Self:
        """Leave the rows [B], bool, without tokens to train on."""
        return replace(self, sequences=self.sequences.clear(rows))

    def token_counts(self, *, padded: bool = False) -> list[int]:
        """Count the tokens of each row, and of its padding if `padded`."""
        return self.sequences.token_counts(padded=padded)

    @property
    def num_trajectories(self) -> int:
        """The number of trajectories."""
        return len(self) if self.trajectories is None else int(self.trajectories[-1]) + 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Send values without padding to other processes. Padding is 0 there."""
        lengths = self.sequences.response_lengths()
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        flat = {
            name: flatten_rows(each, lengths)
            for name, each in tensors.items()
            if isinstance(each, Tensor) and name not in ("trajectories", "own_pass")
        }
        return _build_experience, (self.sequences, lengths, flat, self.trajectories, self.own_pass)


Part = TypeVar("Part", Sequences, Experience)


@dataclass(frozen=True)
class MiniBatch:
    """One rank's share of the mini-batch in one optimizer step."""

    experience: Experience
    total_tokens: int
    """Response tokens to train on in the mini-batch, over all ranks."""
    total_sequences: int
    """Responses of the mini-batch with such tokens, over all ranks."""
    row_numbers: tuple[int, ...] | None = None
    """Each row's number in the batch. -1: a copy that fills the mini-batch. None: not known."""


def fill_rows(rows: Part, shares: int) -> Part:
    """Repeat the first row, without tokens to train on, until `shares` divides the number of rows."""
    missing = -len(rows) % shares
    if not missing:
        return rows
    numbers = torch.arange(len(rows) + missing)
    is_copy = numbers >= len(rows)
    return rows.rows(numbers.masked_fill(is_copy, 0)).clear(is_copy)


def balance_shares(lengths: Sequence[int], shares: int, *, cost: Cost = float, equal: bool = True) -> list[Tensor]:
    """Return the row numbers of each share, ascending, so that the shares have about equal costs.

    lengths: the tokens of each row; equal: whether every share has the same number of rows.
    """
    parts = balance_parts([cost(length) for length in lengths], shares, equal=equal)
    return [torch.tensor(rows) for rows in parts]


def split_mini_batches(
    experience: Experience, *, rows: int, shares: int, cost: Cost = float, equal: bool = True
) -> Iterator[list[MiniBatch]]:
    """Iterate over the optimizer steps, each as a list of shares. `rows` is the size of a mini-batch, in trajectories.
    cost, equal: as for balance_shares.

    A response without a token to train on, for example because its reward failed, is not counted. A mini-batch with
    only such responses is skipped: AdamW would take a step without a gradient.
    """
    for start in range(0, experience.num_trajectories, rows):
        chosen: slice | Tensor = slice(start, start + rows)
        if experience.trajectories is not None:
            chosen = (experience.trajectories >= start) & (experience.trajectories < start + rows)
        batch = experience.rows(chosen)
        mask = batch.sequences.response_mask
        tokens = int(mask.count_nonzero())
        sequences = int(mask.any(-1).sum())
        if tokens == 0:
            continue
        numbers = torch.arange(len(experience))[chosen]
        batch = fill_rows(batch, shares)
        numbers = torch.cat([numbers, torch.full((len(batch) - len(numbers),), -1)])
        parts = balance_shares(batch.token_counts(), shares, cost=cost, equal=equal)
        yield [MiniBatch(batch.rows(part), tokens, sequences, tuple(numbers[part].tolist())) for part in parts]


def _build_sequences(
    prompt_lengths: list[int],
    prompt_width: int,
    prompts: NDArray[np.int32],
    lengths: list[int],
    width: int,
    responses: NDArray[np.int32],
    response_mask: NDArray[np.bool_],
    images: RowImages | None,
    routes: Routes | None,
) -> Sequences:
    sequences = Sequences(
        pad_rows(split_rows(prompts, prompt_lengths), np.int32, width=prompt_width, left=True),
        build_mask(prompt_lengths, width=prompt_width, left=True),
        pad_rows(split_rows(responses, lengths), np.int32, width=width),
        build_mask(lengths, width=width),
        pad_rows(split_rows(response_mask, lengths), np.bool_, width=width),
        images,
    )
    return sequences if routes is None else sequences.with_routes(split_rows(routes, sequences.token_counts()))


def _build_experience(
    sequences: Sequences,
    lengths: list[int],
    flat: Mapping[str, NDArray[Any]],
    trajectories: Tensor | None,
    own_pass: Tensor | None,
) -> Experience:
    width = sequences.responses.shape[1]
    values: dict[str, Any] = {
        name: pad_rows(split_rows(each, lengths), each.dtype.type, width=width, shape=each.shape[1:])
        for name, each in flat.items()
    }
    return Experience(sequences, **values, trajectories=trajectories, own_pass=own_pass)
