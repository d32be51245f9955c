"""A summary of a run as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlt.metric_text import WINDOW, draw_sparkline, format_number
from rlt.report.comparison import flatten
from rlt.report.summary import UNITS, Origin, compute_throughput, compute_time_shares, summarize_metrics
from rlt.runs.run import Run

SPARKLINE_WIDTH = 24
MAX_CELL_LENGTH = 300
ZERO_WIDTH_SPACE = "\u200b"


def build_summary(run: Run, origin: Origin) -> str:
    """Phase, metrics, time, findings, attempts and configuration. Recorded texts are escaped."""
    parts = [
        f"## {escape(run.name)}",
        f"**{escape(run.phase)}**: {escape(run.sentence)}",
        _format_metrics(run),
        _format_speed(run),
        "\n".join(_format_finding(each) for each in run.findings) or "No problems found.",
        _format_attempts(run.attempts),
        "\n".join(f"- Missing: {escape(note)}" for note in run.notes),
        _format_configuration(run.config),
        f"Written by rlt {origin.version} at {origin.time}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def escape(text: str) -> str:
    """A text on one line without Markdown, HTML, mentions or references to issues."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    shown = line if len(line) <= MAX_CELL_LENGTH else line[: MAX_CELL_LENGTH - 1] + "…"
    marked = re.sub(r"([\\`*_{}\[\]()<>#+|~!$&-])", r"\\\1", shown)
    return re.sub(r"(@|#)(?=\w)", rf"\1{ZERO_WIDTH_SPACE}", marked)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of escaped cells."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_metrics(run: Run) -> str:
    rows = [
        [
            escape(each.label) + (f" ({UNITS[each.label]})" if each.label in UNITS else ""),
            format_number(each.first),
            format_number(each.final),
            "" if each.best is None else f"{format_number(each.best)} (step {each.best_step})",
            draw_sparkline(each.values, SPARKLINE_WIDTH),
        ]
        for each in summarize_metrics(run.steps)
    ]
    columns = ["metric", "first", f"mean of the last {WINDOW}", "best", f"{len(run.steps)} steps"]
    return format_table(columns, rows) if rows else ""


def _format_speed(run: Run) -> str:
    speed = compute_throughput(run.steps)
    shares = compute_time_shares(run.steps)
    facts = {
        "tokens per second": speed.tokens_per_second,
        "seconds a step (median)": speed.median_step_seconds,
        "seconds of all steps": speed.total_seconds,
    }
    lines = [f"{name}: {format_number(value)}" for name, value in facts.items() if value is not None]
    parts = [f"{escape(phase)} {100 * share:.0f} %" for phase, share in shares.items() if share >= 0.01]
    return "  \n".join(filter(None, [", ".join(lines), f"time of a step: {', '.join(parts)}" if parts else ""]))


def _format_finding(finding: Mapping[str, Any]) -> str:
    keys = ("message", "evidence", "remedy")
    message, evidence, remedy = (escape(str(finding.get(key) or "")) for key in keys)
    return f"- **{escape(str(finding.get('code')))}**: {message} Evidence: {evidence}. {remedy}"


def _format_attempts(attempts: Sequence[Mapping[str, Any]]) -> str:
    keys = ("number", "reason", "step", "nodeAtFault", "message")
    rows = [[escape(str(each[key])) if each.get(key) is not None else "" for key in keys] for each in attempts]
    return format_table(["attempt", "reason", "last step", "node at fault", "message"], rows) if rows else ""


def _format_configuration(config: Mapping[str, Any]) -> str:
    rows = [[escape(path), escape(value)] for path, value in flatten(config)]
    table = format_table(["field", "value"], rows)
    return f"<details><summary>Configuration</summary>\n\n{table}\n\n</details>" if rows else ""
