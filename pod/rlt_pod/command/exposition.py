"""The progress as Prometheus metrics, with the names of rlt's trainer, so that one dashboard shows both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rlt_pod.command.console import Progress, build_report, compute_tokens_per_second
from rlt_pod.report import prometheus_names as names


def format_metrics(progress: Progress, *, job: str, namespace: str) -> str:
    """Format the metrics as text (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4)."""
    target = {"job": job, "namespace": namespace}
    families: dict[str, dict[str, float]] = {}  # name -> labels -> value
    for name, labels, value in _list_series(progress):
        text = ",".join(f'{label}="{_escape(content)}"' for label, content in {**target, **labels}.items())
        families.setdefault(name, {})[text] = value  # of duplicates the last value counts
    lines = []
    for name, series in families.items():
        lines.append(f"# HELP {name} {names.HELP[name]}")
        lines.append(f"# TYPE {name} {'counter' if name in names.COUNTERS else 'gauge'}")
        lines += [f"{name}{{{labels}}} {_format_number(value)}" for labels, value in series.items()]
    return "\n".join(lines) + "\n"


def _list_series(progress: Progress) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for key, value in progress.metrics.items():
        gauge, labels = names.find_gauge(key)
        yield gauge.name, labels, gauge.factor * value
    yield names.LAST_STEP_TIMESTAMP, {}, progress.updated
    progress_report = build_report(progress)
    if progress_report is not None:
        yield names.STEP, {}, progress_report["step"]
        if progress_report["totalSteps"]:  # 0 is unknown
            yield names.TOTAL_STEPS, {}, progress_report["totalSteps"]
        yield names.STAGE, {"stage": progress_report["stage"]}, 1
    speed = compute_tokens_per_second(progress)
    if speed is not None:
        yield names.TOKENS_PER_SECOND, {}, speed
    yield names.TOKENS_TOTAL, {}, progress.tokens
    yield names.STEPS_TOTAL, {}, progress.steps


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _format_number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf" if math.isinf(value) else repr(value)
