"""The table of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bench_report import Row, describe_machine, render_row, write_table

COMMAND = "bench-operator"


def render_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, with the date and the machine."""
    lines = [f"{describe_machine()}, {datetime.now(UTC):%Y-%m-%d}.", "", "| what | target | measured | met |"]
    return "\n".join([*lines, "|---|---|---|---|", *map(render_row, rows)]) + "\n"


def write_page(rows: Sequence[Row]) -> None:
    """Replace the table of docs/performance.md."""
    write_table(COMMAND, render_table(rows))
