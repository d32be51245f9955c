"""Tables of measurements: in docs/performance.md, between two markers, and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/performance.md"


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    what: str
    target: str
    measured: str
    met: bool | None
    """None: it could not be measured here. `measured` is then the reason."""
    figures: Mapping[str, Any]


def render_row(row: Row) -> str:
    """Render the row as Markdown."""
    met = {True: "yes", False: "**missed**", None: "not measured"}[row.met]
    return f"| {row.what} | {row.target} | {row.measured} | {met} |"


def describe_machine() -> str:
    """Describe cores and processor."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores ({model})"


def read_table(command: str) -> str:
    """Return the text between the markers of a make target in the page."""
    return _split_page(command)[1]


def write_table(command: str, text: str) -> None:
    """Replace the text between the markers of a make target in the page."""
    before, _, after = _split_page(command)
    PAGE.write_text(f"{before}\n{text}\n{after}")


def write_json(rows: Sequence[Row], file: Path) -> None:
    """Write all figures."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": describe_machine(), "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(found, indent=1) + "\n")


def _split_page(command: str) -> tuple[str, str, str]:
    """Split the page into the text up to the first marker, between the markers, and from the second one."""
    begin = f"<!-- {command}: written by make {command} -->\n"
    end = f"<!-- {command}: end -->\n"
    before, opening, rest = PAGE.read_text().partition(begin)
    between, closing, after = rest.partition(end)
    assert closing, f"{PAGE} lacks the markers of {command}"
    return before + opening, between, closing + after
