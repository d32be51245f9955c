"""Which sequences form the response of one trajectory: several for an agent that changes its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Trajectories:
    """B trajectories of S sequences. Sequences of one trajectory are adjacent and ordered."""

    numbers: Tensor
    """[S], int64: the trajectory of each sequence, ascending."""
    positions: Tensor
    """[S], int64: the position of each sequence in its trajectory, from 0."""
    count: int
    """B"""

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Trajectories:
        """`sizes` [B]: the number of sequences of each trajectory, at least 1."""
        numbers = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        return cls(numbers, torch.cat([torch.arange(size) for size in sizes]), len(sizes))

    @property
    def are_single(self) -> bool:
        """Whether each trajectory is one sequence."""
        return self.count == len(self.numbers)

    def join(self, values: Tensor) -> Tensor:
        """Concatenate the rows [S, T] of each trajectory: [B, K T], where K sequences are the maximum. 0 elsewhere."""
        if self.are_single:
            return values
        joined = values.new_zeros(self.count, self._max_size, values.shape[1])
        joined[self.numbers, self.positions] = values
        return joined.flatten(1)

    def split(self, joined: Tensor) -> Tensor:
        """Undo `join`: [S, T]."""
        if self.are_single:
            return joined
        return joined.view(self.count, self._max_size, -1)[self.numbers, self.positions]

    @property
    def _max_size(self) -> int:
        return int(self.positions.max()) + 1
