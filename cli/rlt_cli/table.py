"""Tables in kubectl's form that fit the width of a terminal. No I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import click

GAP = "   "
"""Space between columns."""
NARROW_GAP = "  "
"""Space between columns in a table that fits the width only with it."""
MIN_TEXT_WIDTH = 24
"""Minimum width of a last column that is wrapped beside the others. A narrower one is put below its row."""
INDENT = "  "


def format_table(columns: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None) -> str:
    """Rows below the names of their columns. None is an empty cell. Cells can have colors (click.style).

    A table that is wider than `width` has its last column wrapped, or below each row. If the other columns are too
    wide as well, each cell is a line with the name of its column. Without a width, each row is one line.
    """
    lines = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(_length(line[i]) for line in lines) for i in range(len(columns))]
    first = sum(widths[:-1]) + len(GAP) * (len(columns) - 1)
    if width is None:
        return "\n".join(_join(line, widths) for line in lines)
    for gap in (GAP, NARROW_GAP):
        if sum(widths) + len(gap) * (len(columns) - 1) <= width:
            return "\n".join(_join(line, widths, gap) for line in lines)
    if width - first >= MIN_TEXT_WIDTH:
        return "\n".join(_hang(line, widths, first, width - first) for line in lines)
    if first - len(GAP) <= width and widths[-1] > MIN_TEXT_WIDTH:
        return "\n".join(part for line in lines for part in (_join(line[:-1], widths), *_put_below(line[-1], width)))
    return "\n\n".join(_format_record(columns, line, width) for line in lines[1:])


def wrap(text: str, width: int | None, *, start: str = "") -> list[str]:
    """The lines of a text with at most `width` characters. The first begins with `start`, the others below its end."""
    if width is None:
        return [start + text]
    indent = " " * _length(start)
    room = max(MIN_TEXT_WIDTH // 2, width - len(indent))
    parts = [part for line in text.splitlines() for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""]]
    return [(indent if number else start) + part for number, part in enumerate(parts or [""])]


def _hang(line: Sequence[str], widths: Sequence[int], first: int, room: int) -> str:
    start, *more = wrap(line[-1], room)
    return "\n".join([_join([*line[:-1], start], widths), *(" " * first + part for part in more)])


def _put_below(text: str, width: int) -> list[str]:
    return [INDENT + part for part in wrap(text, width - len(INDENT))] if text else []


def _format_record(columns: Sequence[str], cells: Sequence[str], width: int) -> str:
    room = max(map(len, columns)) + len(GAP)
    named = [(name, cell) for name, cell in zip(columns, cells, strict=True) if cell]
    return "\n".join(part.rstrip() for name, cell in named for part in wrap(cell, width, start=f"{name:<{room}}"))


def _join(cells: Sequence[str], widths: Sequence[int], gap: str = GAP) -> str:
    padded = (cell + " " * (width - _length(cell)) for cell, width in zip(cells, widths, strict=False))
    return gap.join(padded).rstrip()


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _length(text: str) -> int:
    return len(click.unstyle(text))
