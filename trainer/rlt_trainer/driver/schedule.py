"""Generation that runs ahead of the training by a bounded number of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Schedule(Generic[T]):
    """The steps in order, each with what was generated for it.

    `start` begins the generation for a step. It is called for step s when step s - max_staleness begins, so what step s
    learns from is at most so many updates of the weights old. 0 is on-policy: a step's generation begins with the step,
    and nothing else runs meanwhile. 1 is one step off (verl's one_step_off_policy).
    """

    def __init__(
        self,
        start: Callable[[int], Future[T]],
        steps: range,
        *,
        max_staleness: int,
        finished: Mapping[int, T] | None = None,
    ) -> None:
        """`finished`: what a checkpoint kept of `finished`; it is not generated again."""
        self._start = start
        self._steps = steps
        self._max_staleness = max_staleness
        self._running: dict[int, Future[T]] = {}
        for step, result in (finished or {}).items():
            self._running[step] = Future()
            self._running[step].set_result(result)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        for step in self._steps:
            self._running.pop(step - 1, None)  # only now: until its update it belongs into a checkpoint
            for ahead in range(step, min(step + self._max_staleness, self._steps[-1]) + 1):
                if ahead not in self._running:
                    self._running[ahead] = self._start(ahead)
            yield step, self._running[step].result()

    def finished(self, after: int) -> dict[int, T]:
        """What has been generated for the steps after `after`: the replay queue of the checkpoint of that step."""
        return {
            step: future.result()
            for step, future in self._running.items()
            if step > after and future.done() and future.exception() is None
        }
