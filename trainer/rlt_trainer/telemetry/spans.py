"""Spans: which rank was in which phase at which time, and the division of a step's time by phase. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

DRIVER = -1
"""The rank number that stands for the driver."""
STEP = "step"
"""The phase that contains all other phases of a step."""
TESTING = "testing"
"""The phase of suites."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """The time that one thread spent in one phase."""

    rank: int
    """A rank, or DRIVER."""
    phase: str
    start: float
    """Unix time."""
    end: float
    """Unix time."""
    step: int
    thread: int = 0
    """0 is the thread that created the stopwatch."""
    engine: int | None = None
    """Number of the engine, whose rank follows the train workers' ranks. None for other processes."""

    @property
    def process(self) -> str:
        """Name of the process for people."""
        if self.engine is not None:
            return f"engine {self.engine}"
        return "driver" if self.rank == DRIVER else f"rank {self.rank}"


def compute_exclusive_seconds(spans: Iterable[Span]) -> dict[str, float]:
    """Return the seconds by phase of one thread's nested spans. The time of nested spans does not count for the outer
    phase, so the values add up to the total."""
    seconds: dict[str, float] = {}
    open_spans: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        while open_spans and open_spans[-1].end <= span.start:
            open_spans.pop()
        length = span.end - span.start
        seconds[span.phase] = seconds.get(span.phase, 0.0) + length
        if open_spans:
            seconds[open_spans[-1].phase] -= length
        open_spans.append(span)
    return seconds


def compute_phase_seconds(spans: Iterable[Span], phase: str) -> float:
    """Return the seconds in `phase`, including nested spans. Overlapping spans count once."""
    return _length(_union((span.start, span.end) for span in spans if span.phase == phase))


def compute_step_seconds(driver: Sequence[Span]) -> dict[str, float]:
    """Return the seconds of the driver's phases, "unaccounted" and "step". "step" is the sum of the others."""
    (step,) = (span for span in driver if span.phase == STEP)
    within = [span for span in driver if span.thread == step.thread and step.start <= span.start <= step.end]
    phases = compute_exclusive_seconds(within)
    unaccounted = phases.pop(STEP)
    return {**phases, "unaccounted": unaccounted, STEP: step.end - step.start}


def compute_overlap_seconds(driver: Sequence[Span], others: Sequence[Span]) -> dict[str, float]:
    """Return the seconds by phase during which ranks or other threads of the driver were in it while the driver's main
    thread was not.

    This is the time that background generation saves: phase "gen" of the driver is then only its waiting time. Engines
    are in phase "gen" also while they generate the responses of suites, which count for "testing" alone.
    """
    (main,) = {span.thread for span in driver if span.phase == STEP}
    background = [*others, *(span for span in driver if span.thread != main)]
    seconds = {}
    for phase in {span.phase for span in driver} - {STEP}:
        running = _union((span.start, span.end) for span in background if span.phase == phase)
        excluded = _union(
            (span.start, span.end)
            for span in driver
            if (span.phase == phase and span.thread == main) or (span.phase == TESTING and phase == "gen")
        )
        seconds[phase] = _length(running) - _length(_intersect(running, excluded))
    return seconds


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def _intersect(left: Sequence[Interval], right: Sequence[Interval]) -> Iterator[Interval]:
    for start, end in left:
        for other_start, other_end in right:
            if max(start, other_start) < min(end, other_end):
                yield max(start, other_start), min(end, other_end)


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
