"""The numbers of a run: main metrics, throughput, and how the time of its steps divides."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rlt.metric_text import PAGE_METRICS, WINDOW, Step
from rlt_pod.report.driver_report import METRICS

VALIDATION = "val-core/"
"""Prefix of verl's validation metrics: val-core/SOURCE/METRIC/mean@N."""
HIGHER_IS_BETTER = ("reward", "validation")
UNITS = {
    "kl": "nats",
    "entropy": "nats",
    "response length": "tokens",
    "seconds a step": "s",
    "clip fraction": "share",
}
"""Label of a metric -> its unit. The others have none."""


@dataclass(frozen=True)
class Origin:
    """What wrote a report, and when."""

    version: str
    time: str
    """RFC 3339, UTC."""


@dataclass(frozen=True)
class MetricSummary:
    """A metric over a run. Steps without a finite value do not count."""

    label: str
    name: str
    """verl's name."""
    values: Sequence[float | None]
    first: float
    final: float
    """Mean over the last WINDOW steps; of a validation the last value."""
    best: float | None
    """The highest value, of rewards and validations."""
    best_step: int | None


@dataclass(frozen=True)
class Throughput:
    """Time and tokens of a run. None: not recorded."""

    tokens_per_second: float | None
    """Prompt and response tokens of all steps, divided by their time."""
    median_step_seconds: float | None
    total_seconds: float | None
    """The time of all steps, without the start-up."""


def summarize_metrics(steps: Sequence[Step]) -> list[MetricSummary]:
    """The main metrics that the run has: reward, validations, then the others of the status page."""
    found = [_summarize(steps, label, name) for label, name in find_metrics(steps).items()]
    return [each for each in found if each is not None]


def find_metrics(steps: Sequence[Step]) -> dict[str, str]:
    """Label -> verl's name of the main metrics that the run has."""
    known = {name: None for step in steps for name in step}
    labels = {**PAGE_METRICS, "clip fraction": METRICS["clipFraction"]}
    found = {label: next((name for name in names if name in known), None) for label, names in labels.items()}
    validations = [name for name in known if name.startswith(VALIDATION) and "/mean@" in name and name.isprintable()]
    named = {f"validation {name.removeprefix(VALIDATION).rpartition('/')[0]}": name for name in validations}
    reward = found.pop("reward")
    ordered = {"reward": reward, **named, **found}
    return {label: name for label, name in ordered.items() if name is not None}


def compute_throughput(steps: Sequence[Step]) -> Throughput:
    """Tokens per second, and the time of the steps."""
    timed = [(step["timing_s/step"], step.get("perf/total_num_tokens")) for step in steps if step.get("timing_s/step")]
    seconds = [each for each, _ in timed if each]
    counted = [(each, tokens) for each, tokens in timed if each and tokens]
    total = sum(each for each, _ in counted)
    return Throughput(
        tokens_per_second=sum(tokens for _, tokens in counted) / total if total else None,
        median_step_seconds=statistics.median(seconds) if seconds else None,
        total_seconds=sum(seconds) if seconds else None,
    )


def compute_time_shares(steps: Sequence[Step]) -> dict[str, float]:
    """Phase of a step -> its share of all steps' time, the largest first. The shares add up to 1."""
    seconds: dict[str, float] = {}
    for step in steps:
        for name, value in step.items():
            if name.startswith("timing_s/") and name != "timing_s/step" and value and value > 0:
                phase = name.removeprefix("timing_s/")
                seconds[phase] = seconds.get(phase, 0.0) + value
    total = sum(seconds.values())
    return {phase: seconds[phase] / total for phase in sorted(seconds, key=lambda each: -seconds[each])}


def average_latest(values: Sequence[float]) -> list[float]:
    """The mean of each value and those before it, of WINDOW values; fewer if there are fewer in all."""
    size = min(WINDOW, len(values))
    return [statistics.fmean(values[end - size : end]) for end in range(size, len(values) + 1)] if size else []


def find_step_reaching(steps: Sequence[Step], reward: float) -> tuple[int, float] | None:
    """The first step at which the mean reward of WINDOW steps reaches `reward`, and the seconds until its end."""
    name = find_metrics(steps).get("reward")
    found = [(step, value) for step in steps if name and (value := step.get(name)) is not None]
    means = average_latest([value for _, value in found])
    offset = len(found) - len(means)
    reached = next((found[offset + index][0]["step"] for index, mean in enumerate(means) if mean >= reward), None)
    if reached is None:
        return None
    return int(reached), sum(step.get("timing_s/step") or 0.0 for step in steps if (step["step"] or 0) <= reached)


def find_best_mean_reward(steps: Sequence[Step]) -> float | None:
    """The highest mean reward of WINDOW steps."""
    name = find_metrics(steps).get("reward")
    values = [value for step in steps if name and (value := step.get(name)) is not None]
    return max(average_latest(values), default=None)


def _summarize(steps: Sequence[Step], label: str, name: str) -> MetricSummary | None:
    values = [(step["step"], step[name]) for step in steps if name in step]
    finite = [(step, value) for step, value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    window = 1 if name.startswith(VALIDATION) else WINDOW
    best_step, best = max(finite, key=lambda each: each[1]) if label.startswith(HIGHER_IS_BETTER) else (None, None)
    return MetricSummary(
        label=label,
        name=name,
        values=[value for _, value in values],
        first=finite[0][1],
        final=statistics.fmean(value for _, value in finite[-window:]),
        best=best,
        best_step=None if best_step is None else int(best_step),
    )
