"""Results by the hash of their input. The input, which a tenant may have written, is not kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class ResultCache(Generic[Result]):
    """At most `size` results: the oldest are dropped. Python's hashes of texts have a random key in each process."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._results: dict[int, Result] = {}

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result for this input, computed if it is not known."""
        digest = hash(key)
        if digest not in self._results:
            result = compute()
            if len(self._results) >= self._size:
                self._results.pop(next(iter(self._results)), None)
            self._results[digest] = result
        return self._results[digest]

    def __len__(self) -> int:
        return len(self._results)
