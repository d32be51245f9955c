"""Generation that runs ahead of the training by a limited number of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Schedule(Generic[T]):
    """Iterates over the steps and their generated batches.

    `start` starts the generation for a step. It is called for step s when step s - max_staleness begins, so the batch
    of step s is at most max_staleness weight updates old. 0 is on-policy: the generation for a step starts with the
    step, and no other generation runs. 1 is verl's one_step_off_policy.
    """

    def __init__(
        self,
        start: Callable[[int], Future[T]],
        steps: range,
        *,
        max_staleness: int,
        finished: Mapping[int, T] | None = None,
        wait: Callable[[Future[T]], T] = Future.result,
    ) -> None:
        """`finished`: restored batches from a checkpoint, which are not generated again. `wait` waits for a batch."""
        self._wait = wait
        self._start = start
        self._steps = steps
        self._max_staleness = max_staleness
        self._running: dict[int, Future[T]] = {}
        for step, result in (finished or {}).items():
            self._running[step] = Future()
            self._running[step].set_result(result)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        for step in self._steps:
            self._running.pop(step - 1, None)  # not earlier: a checkpoint before the update must contain it
            for ahead in range(step, min(step + self._max_staleness, self._steps[-1]) + 1):
                if ahead not in self._running:
                    self._running[ahead] = self._start(ahead)
            yield step, self._wait(self._running[step])

    def finished(self, after: int) -> dict[int, T]:
        """Return the batches that are already generated for steps after `after`, for the checkpoint of that step."""
        return {
            step: future.result()
            for step, future in self._running.items()
            if step > after and future.done() and future.exception() is None
        }
