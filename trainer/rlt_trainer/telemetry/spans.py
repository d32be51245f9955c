"""Who did what from when to when, and how a step's time divides up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

DRIVER = -1
"""The driver's number among the ranks."""
STEP = "step"
"""The phase that holds all others of a step."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """One process was in one phase."""

    rank: int
    """DRIVER, or a rank."""
    phase: str
    start: float
    """Unix time."""
    end: float
    """Unix time."""
    step: int
    thread: int = 0
    """0 is the one that made the stopwatch."""


def own_seconds(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by phase of one thread's nested spans, what is nested in a phase deducted from it: they add up."""
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


def whole_seconds(spans: Iterable[Span], phase: str) -> float:
    """Seconds in `phase`, what is nested in it included; the same time counts once."""
    return _length(_union((span.start, span.end) for span in spans if span.phase == phase))


def step_seconds(driver: Sequence[Span]) -> dict[str, float]:
    """The driver's step as its phases, "unaccounted" and "step": the phases and "unaccounted" add up to "step"."""
    (step,) = (span for span in driver if span.phase == STEP)
    within = [span for span in driver if span.thread == step.thread and step.start <= span.start <= step.end]
    phases = own_seconds(within)
    unaccounted = phases.pop(STEP)
    return {**phases, "unaccounted": unaccounted, STEP: step.end - step.start}


def overlap_seconds(driver: Sequence[Span], others: Sequence[Span]) -> dict[str, float]:
    """Seconds in which ranks, or other threads of the driver, were in a phase of the step while the driver was not.

    That is what generating in the background saves: phase "gen" of the driver is only what it waited for then.
    """
    (main,) = {span.thread for span in driver if span.phase == STEP}
    background = [*others, *(span for span in driver if span.thread != main)]
    seconds = {}
    for phase in {span.phase for span in driver} - {STEP}:
        beside = _union((span.start, span.end) for span in background if span.phase == phase)
        waited = _union((span.start, span.end) for span in driver if span.phase == phase and span.thread == main)
        seconds[phase] = _length(beside) - _length(_common(beside, waited))
    return seconds


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def _common(left: Sequence[Interval], right: Sequence[Interval]) -> Iterator[Interval]:
    for start, end in left:
        for other_start, other_end in right:
            if max(start, other_start) < min(end, other_end):
                yield max(start, other_start), min(end, other_end)


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
