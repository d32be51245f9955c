"""Metrics of steps as text: numbers, bars, and the metrics that pages show first. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from rlt_pod.report.driver_report import LATEST_STEPS, METRICS

Step = Mapping[str, float | None]
"""A line of metrics.jsonl: `step` and the metrics. None is NaN or infinite, which JSON cannot represent."""
WINDOW = LATEST_STEPS
"""Number of latest steps in the reward of a run, in the final value of a training metric, and in the reward that a run
reaches. One step's reward is often the luckiest of its neighbors."""
BARS = "▁▂▃▄▅▆▇█"
PAGE_METRICS = {
    "reward": METRICS["reward"],
    "kl": METRICS["kl"],
    "entropy": METRICS["entropy"],
    "response length": METRICS["responseLength"],
    "gradient norm": METRICS["gradNorm"],
    "seconds a step": ("timing_s/step",),
}
"""Line of a page -> verl's names of the metric. The first name that the run has is used."""


def draw_sparkline(values: Sequence[float | None], width: int = 40, scale: tuple[float, float] | None = None) -> str:
    """The finite values as bars, averaged to at most `width` bars.

    `scale`: the values of the lowest and the highest bar, by default from these values.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    size = math.ceil(len(finite) / width)
    means = [sum(part) / len(part) for part in (finite[i : i + size] for i in range(0, len(finite), size))]
    low, high = scale or (min(means), max(means))
    return "".join(BARS[int((value - low) / (high - low) * 7.999) if high > low else 3] for value in means)


def find_page_metrics(history: Sequence[Step]) -> dict[str, str]:
    """Line of a page -> name of the metric, for the metrics that the run has."""
    known = {name for step in history for name in step}
    found = ((label, next((name for name in names if name in known), None)) for label, names in PAGE_METRICS.items())
    return {label: name for label, name in found if name is not None}


def list_values(history: Sequence[Step], name: str) -> list[float | None]:
    """The values of a metric, of the steps that have it."""
    return [step[name] for step in history if name in step]


def average_window(values: Sequence[float | None]) -> float | None:
    """The mean of the last WINDOW finite values. None without one."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(finite[-WINDOW:]) if finite else None


def compute_run_reward(history: Sequence[Step]) -> float | None:
    """The reward of a run: the mean of the last WINDOW steps. None if no step has a reward."""
    name = find_page_metrics(history).get("reward")
    return average_window(list_values(history, name)) if name else None


def build_metric_rows(history: Sequence[Step], names: Sequence[str]) -> list[tuple[object, ...]]:
    """One row per step: its number and the values of the metrics."""
    return [
        (step["step"], *(format_number(step[name]) if name in step else None for name in names)) for step in history
    ]


def format_number(value: float | None) -> str:
    """Four significant digits. NaN for None."""
    return "NaN" if value is None else f"{value:.4g}"
