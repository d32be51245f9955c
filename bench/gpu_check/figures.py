"""The figures of a check, and the file that they are appended to as they are measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

NOT_RUN = 77
"""The exit code of a check that raised NotRun: as of a skipped test in automake."""
FORMATS = {float: "{:,.4g}", int: "{:,}", str: "{}"}


class NotRun(Exception):
    """The rest of a check cannot run here. The message is the reason."""


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    name: str
    value: float | int | str
    unit: str = ""
    passed: bool | None = None
    """None: a measurement without a bound."""
    note: str = ""
    """The bound, or another project's figure with its source."""

    def __str__(self) -> str:
        verdict = {True: "ok", False: "FAILED", None: ""}[self.passed]
        value = f"{FORMATS[type(self.value)].format(self.value)} {self.unit}".strip()
        note = f"({self.note})" if self.note else ""
        return "  ".join(part for part in (self.name, value, verdict, note) if part)


def append_figures(figures: Iterable[Figure], file: Path) -> None:
    """Append each figure to `file` as a line of JSON, and print it. A process that is ended loses the later ones."""
    with file.open("a", encoding="utf-8") as lines:
        for figure in figures:
            lines.write(json.dumps(asdict(figure)) + "\n")
            lines.flush()
            print(figure, flush=True)


def read_figures(file: Path) -> list[Figure]:
    """Read the figures in `file`. The last line may be incomplete."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Figure(**json.loads(line)))
        except ValueError:
            break
    return found
