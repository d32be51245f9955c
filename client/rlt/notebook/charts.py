"""Which charts a view has, and the metrics in each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from rlt.metric_text import WINDOW, Step
from rlt.notebook.chart import Points, draw_lines
from rlt.report.summary import VALIDATION, average_latest
from rlt_pod.report.driver_report import METRICS

Lines = dict[str, tuple[str, ...]]
Chart = tuple[str, Lines]
"""Unit of the values, and label of each line -> verl's names of the metric."""
CHARTS: dict[str, Chart] = {
    "Reward": ("reward", {"step": METRICS["reward"]}),
    "KL divergence to the reference model": ("nats", {"KL": METRICS["kl"]}),
    "Entropy": ("nats", {"entropy": METRICS["entropy"]}),
    "Response length": ("tokens", {"mean": METRICS["responseLength"], "maximum": ("response_length/max",)}),
    "Truncated responses": ("share of responses", {"truncated": ("response_length/clip_ratio",)}),
    "Clipped tokens": ("share of tokens", {"clipped": METRICS["clipFraction"]}),
    "Gradient norm": ("norm", {"norm": METRICS["gradNorm"]}),
    "Difference between engine and trainer": (
        "probability",
        {"mean": ("training/rollout_probs_diff_mean",), "maximum": ("training/rollout_probs_diff_max",)},
    ),
    "Staleness": ("steps", {"mean": ("training/staleness/mean",), "maximum": ("training/staleness/max",)}),
    "Throughput of a device": ("tokens/s", {"tokens": ("perf/throughput",)}),
}
"""By title."""


def draw_learning(steps: Sequence[Step]) -> list[tuple[str, Element]]:
    """Title and chart of each metric that the run has."""
    known = {name: None for step in steps for name in step}
    terms: Lines = {
        name.split("/")[1]: (name,) for name in known if name.startswith("reward/") and name.endswith("/mean")
    }
    validations: Lines = {name.removeprefix(VALIDATION): (name,) for name in known if name.startswith(VALIDATION)}
    charts: dict[str, Chart] = {
        "Reward": CHARTS["Reward"],
        "Rewards by name": ("reward", terms if len(terms) > 1 else {}),
        "Validation": ("score", validations),
        **CHARTS,
    }
    series = {title: _find_series(steps, names) for title, (_, names) in charts.items()}
    series["Reward"] |= {f"mean of {WINDOW} steps": _average(points) for points in series["Reward"].values()}
    drawn = ((title, draw_lines(series[title], unit)) for title, (unit, _) in charts.items())
    return [(title, chart) for title, chart in drawn if chart is not None]


def _average(points: Points) -> Points:
    finite = [(step, value) for step, value in points if value is not None and math.isfinite(value)]
    means = average_latest([value for _, value in finite])
    return [(step, mean) for (step, _), mean in zip(finite[len(finite) - len(means) :], means, strict=True)]


def _find_series(steps: Sequence[Step], names: Lines) -> dict[str, Points]:
    known = {name for step in steps for name in step}
    found = {label: next((name for name in each if name in known), None) for label, each in names.items()}
    return {
        label: [(float(step["step"] or 0), step[name]) for step in steps if name in step]
        for label, name in found.items()
        if name is not None
    }
