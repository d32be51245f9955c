"""From what a program prints to how far it is. Pure: lines and their times in, values out.

Read are verl's step lines (rlt_api.step_line), and for the number of steps verl's own words and its progress bar
(verl 0.9.1, verl/trainer/ppo/ray_trainer.py).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlt_api.driver_report import LATEST_STEPS, METRICS
from rlt_api.step_line import parse_step_line

_TOTAL = re.compile(r"Total training steps: (?P<total>[0-9]{1,18})")
_BAR = re.compile(r"Training Progress: +[0-9]+%\|[^|]*\| *(?P<step>[0-9]{1,18})/(?P<total>[0-9]{1,18}) ")


@dataclass(frozen=True)
class Progress:
    """What is known at one moment. Times are Unix times."""

    updated: float
    """When the program last got on, or started."""
    stage: str = "preparing"
    """preparing, training or finished."""
    step: int = 0
    """Steps completed."""
    total_steps: int | None = None
    """Steps in all, if that is known."""
    total_is_given: bool = False
    """Whether the user has said so; then the program's own word on it is passed over."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The latest step's numbers under verl's names."""
    step_seen: float | None = None
    """When the step was seen to be complete; None before any was."""
    durations: tuple[float, ...] = ()
    """Seconds that each of the latest steps took."""
    steps: int = 0
    """Steps completed since the first that was seen."""
    tokens: float = 0.0
    """Tokens trained on since the program started."""


def follow(seen: Progress, line: str, now: float) -> Progress:
    """What is known after one more line."""
    bar, parsed = _BAR.search(line), parse_step_line(line)
    total = _TOTAL.search(line) or bar
    if total and not seen.total_is_given:
        seen = replace(seen, total_steps=int(total["total"]))
    # The bar is printed to another stream than the step lines: where there are such lines, it does not count.
    if bar and not seen.metrics and (int(bar["step"]) > seen.step or seen.step_seen is None):
        seen = _step(seen, int(bar["step"]), {}, now)
    if parsed:
        seen = _step(seen, *parsed, now)
    return seen


def finish(seen: Progress, now: float) -> Progress:
    """What is known when the program has ended well."""
    return replace(seen, stage="finished", updated=now)


def report(seen: Progress) -> dict[str, Any] | None:
    """A ProgressReport as JSON has it; None while the program has said nothing of steps."""
    if seen.total_steps is None and seen.step_seen is None:
        return None
    metrics = {field: _first(seen.metrics, names) for field, names in METRICS.items()}
    said = {
        "stage": seen.stage,
        "step": seen.step,
        "totalSteps": max(seen.total_steps, seen.step) if seen.total_steps is not None else 0,
        "secondsPerStep": sum(seen.durations) / len(seen.durations) if seen.durations else None,
        "tokensPerSecond": tokens_per_second(seen),
        "metrics": {field: value for field, value in metrics.items() if value is not None},
        "updated": _rfc3339(seen.updated),
    }
    return {field: value for field, value in said.items() if value is not None}


def tokens_per_second(seen: Progress) -> float | None:
    """Of the latest step, over all workers. (verl's perf/throughput is per device.)"""
    tokens, seconds = _first(seen.metrics, ("perf/total_num_tokens",)), _step_seconds(seen.metrics)
    return tokens / seconds if tokens is not None and seconds else None


def _step(seen: Progress, step: int, metrics: Mapping[str, float], now: float) -> Progress:
    """A step is complete, or more is said of the same one. Where the count goes back, the program begins anew."""
    if seen.step_seen is not None and step == seen.step:
        return replace(seen, metrics={**seen.metrics, **metrics}, updated=now)
    onwards = seen.step_seen is not None and step > seen.step
    seconds = _step_seconds(metrics)
    if seconds is not None:
        seconds += _first(metrics, ("timing_s/testing",)) or 0.0  # validation is no part of verl's step
    elif seen.step_seen is not None and onwards:
        seconds = (now - seen.step_seen) / (step - seen.step)
    durations = (*(seen.durations if onwards else ()), *([] if seconds is None else [seconds]))
    return replace(
        seen,
        stage="training",
        step=step,
        metrics=metrics,
        step_seen=now,
        durations=durations[-LATEST_STEPS:],
        steps=seen.steps + (step - seen.step if onwards else 0),
        tokens=seen.tokens + (_first(metrics, ("perf/total_num_tokens",)) or 0.0),
        updated=now,
    )


def _step_seconds(metrics: Mapping[str, float]) -> float | None:
    return _first(metrics, ("timing_s/step", "perf/time_per_step"))


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """The first of the names that has a value, finite as JSON wants it."""
    return next((metrics[name] for name in names if math.isfinite(metrics.get(name, math.nan))), None)


def _rfc3339(moment: float) -> str:
    whole, milliseconds = divmod(round(moment * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03d}Z"
