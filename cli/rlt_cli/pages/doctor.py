"""The lines of `rlt doctor` as a table, and in Markdown. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from rlt_cli.table import format_table
from rlt_core.doctor.line import Line, State

MARKDOWN = "markdown"
"""Output format for issues."""
MARKS = {State.OK: "✓", State.WARNING: "!", State.ERROR: "✗", State.UNKNOWN: "?"}
COLORS = {State.OK: "green", State.WARNING: "yellow", State.ERROR: "red", State.UNKNOWN: "cyan"}
COUNTED = (State.WARNING, State.ERROR)
"""States that are nouns."""


def format_page(lines: Sequence[Line], width: int | None = None) -> str:
    """One table, and how many lines have each state. Rows have at most `width` characters."""
    rows = [
        (f"{click.style(MARKS[line.state], fg=COLORS[line.state])} {line.topic}", _describe(line)) for line in lines
    ]
    return f"{format_table(('TOPIC', 'FOUND'), rows, width)}\n\n{_summarize(lines)}"


def format_markdown(lines: Sequence[Line]) -> str:
    """A table in GitHub's Markdown, in which the text of the cluster is plain text."""
    rows = [f"| {line.state} | {line.topic} | {_escape(line.message)} | {_escape(line.fix or '')} |" for line in lines]
    return "\n".join(["| state | topic | found | fix |", "|---|---|---|---|", *rows, "", _summarize(lines)])


def _describe(line: Line) -> str:
    return f"{line.message} Fix: {line.fix}" if line.fix else line.message


def _summarize(lines: Sequence[Line]) -> str:
    counted = Counter(line.state for line in lines)
    return ", ".join(
        f"{counted[state]} {state}{'s' if state in COUNTED and counted[state] != 1 else ''}" for state in State
    )


def _escape(text: str) -> str:
    """Neither a cell's end nor a mention, a link or an element."""
    escaped = "".join(f"\\{char}" if char in "\\`*_[]<>|#" else char for char in text)
    return escaped.replace("@", "@\u200b").replace("\n", " ")
