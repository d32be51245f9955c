"""Time measurement of a process's phases."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlt_trainer.telemetry.spans import DRIVER, Span


class Stopwatch:
    """Records the spans of all threads in one process. Phases can be nested, and phases of threads can overlap."""

    def __init__(self, rank: int = DRIVER, *, engine: int | None = None, step: int = 0) -> None:
        self.step = step
        """The step of new spans."""
        self._rank = rank
        self._engine = engine
        self._spans: list[Span] = []
        self._threads = {threading.get_ident(): 0}
        self._epoch = time.time() - time.perf_counter()  # Unix time, but monotonic within this process

    @contextmanager
    def measure(self, phase: str, *, thread: int | None = None) -> Iterator[None]:
        """Measure the block as `phase` of the step. `thread`: its number, default: the current thread's."""
        step = self.step
        start = time.perf_counter()
        if thread is None:
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        try:
            yield
        finally:
            end = time.perf_counter()
            times = self._epoch + start, self._epoch + end
            self._spans.append(Span(self._rank, phase, *times, step, thread, self._engine))

    def take(self) -> list[Span]:
        """Return and remove the completed spans."""
        count = len(self._spans)
        taken = self._spans[:count]
        self._spans[:count] = []
        return taken
