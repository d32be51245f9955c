"""What the progress looks like to Prometheus: the names of rlt's own trainer, so that one dashboard fits both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rlt_api import prometheus_names as names
from rlt_core.command.console import Progress, report, tokens_per_second


def exposition(seen: Progress, *, job: str, namespace: str) -> str:
    """The text that a scrape gets (https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4)."""
    target = {"job": job, "namespace": namespace}
    families: dict[str, dict[str, float]] = {}  # name -> labels -> value: a name's series stand together
    for name, labels, value in _series(seen):
        text = ",".join(f'{label}="{_escaped(content)}"' for label, content in {**target, **labels}.items())
        families.setdefault(name, {})[text] = value  # a name that is given twice has the later value
    lines = []
    for name, series in families.items():
        lines.append(f"# HELP {name} {names.HELP[name]}")
        lines.append(f"# TYPE {name} {'counter' if name in names.COUNTERS else 'gauge'}")
        lines += [f"{name}{{{labels}}} {_number(value)}" for labels, value in series.items()]
    return "\n".join(lines) + "\n"


def _series(seen: Progress) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for key, value in seen.metrics.items():
        gauge, labels = names.gauge_of(key)
        yield gauge.name, labels, value
    yield names.LAST_STEP_TIMESTAMP, {}, seen.updated
    said = report(seen)
    if said is not None:
        yield names.STEP, {}, said["step"]
        if said["totalSteps"]:  # else nobody knows
            yield names.TOTAL_STEPS, {}, said["totalSteps"]
        yield names.STAGE, {"stage": said["stage"]}, 1
    speed = tokens_per_second(seen)
    if speed is not None:
        yield names.TOKENS_PER_SECOND, {}, speed
    yield names.TOKENS_TOTAL, {}, seen.tokens
    yield names.STEPS_TOTAL, {}, seen.steps


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf" if math.isinf(value) else repr(value)
