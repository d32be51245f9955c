"""An endless sequence of a data set's rows, epoch after epoch, in an order that depends only on the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Epochs(Generic[T]):
    """Any range of the sequence can be read at any time: to resume, only the number of consumed rows is necessary."""

    def __init__(
        self,
        rows: list[T],
        *,
        seed: int,
        shuffle: bool,
        difficulties: Sequence[float] = (),
        curriculum_epochs: int = 0,
    ) -> None:
        """curriculum_epochs: the number of initial epochs in the order of the rows' `difficulties`."""
        assert rows, "reading rejects an empty data set"
        self._rows = rows
        self._seed = seed
        self._shuffle = shuffle
        self._difficulties = difficulties
        self._curriculum_epochs = curriculum_epochs

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, step: int, size: int) -> list[T]:
        """Return the `size` rows of a step, counted from 0, if every step takes `size` rows."""
        return self.take(step * size, size)

    def take(self, start: int, count: int) -> list[T]:
        """Return the `count` rows after the first `start`. The range may span several epochs."""
        taken: list[T] = []
        while len(taken) < count:
            epoch, place = divmod(start + len(taken), len(self))
            taken += [self._rows[i] for i in self._list_order(epoch)[place : place + count - len(taken)]]
        return taken

    def epoch(self, taken: int) -> int:
        """Return the number of complete epochs after `taken` rows."""
        return taken // len(self)

    @property
    def order(self) -> int | None:
        """The seed of the order. None: the data's order."""
        return self._seed if self._shuffle else None

    def _list_order(self, epoch: int) -> list[int]:
        order = list(range(len(self)))
        if self._shuffle:
            order = [int(i) for i in np.random.default_rng([self._seed, epoch]).permutation(len(self))]
        if epoch < self._curriculum_epochs:
            order.sort(key=self._difficulties.__getitem__)  # equal ones stay shuffled
        return order
