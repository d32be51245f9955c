"""The gate of a suite: whether its figures after the training pass promoteIf."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.blocks.evaluation import PromoteIf
from rlt_trainer.evaluation.bootstrap import LEVEL, MIN_PROMPTS, Interval, find_differences
from rlt_trainer.evaluation.estimates import Estimate, compute_estimates, list_sizes
from rlt_trainer.evaluation.samples import Samples

MAX_MISSING = 0.05
"""With a larger share of values missing, a gate is unknown: rewards do not fail at random. A judge fails on long
responses, for example."""


@dataclass(frozen=True)
class Gate:
    """The figures of a suite, and whether they pass."""

    passed: bool | None
    """None: a figure is missing."""
    evidence: str
    """The figures and what they are compared with, or why they are missing."""
    metric: str | None = None
    """mean, or best@N or maj@N."""
    value: float | None = None
    gain: Interval | None = None
    """The difference to the base, if promoteIf has gainAbove."""


def judge(promote_if: PromoteIf, samples: Samples, base: Samples | None) -> Gate:
    """Judge the samples of a suite after the training. `base`: its samples before it, which gainAbove needs."""
    metric = "mean" if promote_if.metric == "mean" else f"{promote_if.metric}@{samples.n}"
    for name, each in {"the suite": samples, "the base": base}.items():
        if each is not None and (share := compute_missing(metric, each)) > MAX_MISSING:
            return Gate(None, f"{share:.0%} of {name} has no value of {metric}, over {MAX_MISSING:.0%}: rewards failed")
    value = _estimate(samples, samples.n)[metric].value
    results = []
    texts = [f"{metric} {value:.4f}"]
    if promote_if.minimum is not None:
        results.append(value >= promote_if.minimum)
        texts.append(f"minimum {promote_if.minimum:g}")
    gain = None
    if promote_if.gain_above is not None:
        gain = None if base is None else find_gain(metric, samples, base)
        if gain is None:
            return Gate(None, f"fewer than {MIN_PROMPTS} prompts of the suite are in the base", metric, value)
        results.append(gain.low > promote_if.gain_above)
        limits = f"{LEVEL:.0%} interval {gain.low:+.4f} to {gain.high:+.4f}"
        texts.append(f"gain {gain.value:+.4f} ({limits}), gainAbove {promote_if.gain_above:g}")
    return Gate(all(results), ", ".join(texts), metric, value, gain)


def find_gain(metric: str, samples: Samples, base: Samples) -> Interval | None:
    """Return the paired difference of a metric to the base. None: they share fewer than MIN_PROMPTS prompts."""
    current, start = samples.pair(base)
    return find_differences(_estimate(current, samples.n), _estimate(start, samples.n)).get(metric)


def compute_missing(metric: str, samples: Samples) -> float:
    """The share of responses, for best@N and maj@N of prompts, without a value."""
    estimate = _estimate(samples, samples.n).get(metric)
    possible = len(samples.scores) * (samples.n if metric == "mean" else 1)
    return 1 - float(estimate.counts.sum()) / possible if estimate else 1.0


def _estimate(samples: Samples, n: int) -> dict[str, Estimate]:
    """The estimates of n responses: all that a gate has."""
    return compute_estimates(samples, list_sizes(n)[-1:])
