"""The page of `rlt compare`. No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlt.metric_text import WINDOW, draw_sparkline, format_number
from rlt.report.comparison import Comparison, Row
from rlt.report.suite_differences import LEVEL, MIN_PROMPTS, SuiteDifference
from rlt_cli.table import format_table, wrap

MISSING = "-"
SPARKLINE_WIDTH = 24
MAX_CELL_LENGTH = 40


def format_comparison(comparison: Comparison, labels: Sequence[str], width: int | None = None) -> str:
    """The tables, with one column for each run. Differences are those to the first run."""
    runs = comparison.runs
    about = [(label, each.phase, len(each.steps), each.source) for label, each in zip(labels, runs, strict=True)]
    configuration = [(path, *map(_shorten, values)) for path, values in comparison.configuration.items()]
    bars = _draw_bars(comparison)
    sections = [
        format_table(("RUN", "PHASE", "STEPS", "FROM"), about, width),
        format_table(("CONFIGURATION", *labels), configuration, width)
        if configuration
        else "The configuration is the same.",
        _format_rows("METRIC", comparison.metrics, labels, width),
    ]
    if comparison.suites:
        sections.append(_format_suites(comparison.suites, labels, width))
    if comparison.reward is not None:
        title = f"UNTIL REWARD {format_number(comparison.reward)}"
        sections.append(_format_rows(title, comparison.reached, labels, width))
    sections.append(_format_rows("THROUGHPUT", comparison.throughput, labels, width))
    if bars:
        sections.append(format_table(("METRIC", *labels), bars, width))
    if comparison.metrics:
        sections.append(
            "\n".join(
                wrap(
                    f"final: the mean of the last {WINDOW} steps, of a validation the last one. The reward that "
                    f"a step reaches is the mean of {WINDOW} steps.",
                    width,
                )
            )
        )
    return "\n\n".join(filter(None, sections))


def choose_labels(arguments: Sequence[str]) -> list[str]:
    """A short name for each run: the last part of its path, or the argument if that is not unique."""
    names = [argument.rstrip("/").rpartition("/")[2] or argument for argument in arguments]
    return [
        name
        if names.count(name) == 1
        else f"{argument}"
        if list(arguments).count(argument) == 1
        else f"{name}#{number}"
        for number, (name, argument) in enumerate(zip(names, arguments, strict=True), start=1)
    ]


def _format_rows(title: str, rows: Sequence[Row], labels: Sequence[str], width: int | None) -> str:
    shown = [row for row in rows if any(value is not None for value in row.values)]
    cells = [
        (row.label, *(_format_value(value, row.values[0], i > 0) for i, value in enumerate(row.values)))
        for row in shown
    ]
    return format_table((title, *labels), cells, width) if cells else ""


def _format_suites(
    suites: Mapping[str, Sequence[SuiteDifference | None]], labels: Sequence[str], width: int | None
) -> str:
    """A line for each suite and each run after the first one: means over the common prompts, and the difference."""
    rows = [
        (suite, label, each.prompts, *map(format_number, (each.base, each.value)), _format_interval(each))
        for suite, differences in suites.items()
        for label, each in zip(labels[1:], differences, strict=True)
        if each
    ]
    header = ("SUITE", "RUN", "COMMON PROMPTS", labels[0], "MEAN", f"DIFFERENCE ({LEVEL:.0%} INTERVAL)")
    return format_table(header, rows, width)


def _format_interval(difference: SuiteDifference) -> str:
    if difference.low is None or difference.high is None:
        return f"{difference.value - difference.base:+.4f} (under {MIN_PROMPTS} prompts: no interval)"
    return f"{difference.value - difference.base:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"


def _format_value(value: float | None, first: float | None, is_compared: bool) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    difference = f" ({value - first:+.3g})" if is_compared and first is not None and math.isfinite(first) else ""
    return f"{format_number(value)}{difference}"


def _draw_bars(comparison: Comparison) -> list[tuple[str, ...]]:
    """The values of each metric as bars. The bars of a metric have one scale."""
    labels = dict.fromkeys(label for each in comparison.summaries for label in each)
    rows = []
    for label in labels:
        series = [each[label].values if label in each else [] for each in comparison.summaries]
        finite = [value for values in series for value in values if value is not None and math.isfinite(value)]
        scale = (min(finite), max(finite))
        rows.append((label, *(draw_sparkline(values, SPARKLINE_WIDTH, scale) for values in series)))
    return rows


def _shorten(value: str | None) -> str:
    if value is None:
        return MISSING
    return value if len(value) <= MAX_CELL_LENGTH else value[: MAX_CELL_LENGTH - 1] + "…"
