"""The results: a table for docs/performance.md, and JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from operator_bench.rows import Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/performance.md"
BEGIN = "<!-- bench-operator: written by make bench-operator -->\n"
END = "<!-- bench-operator: end -->\n"


def render_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, with the date and the machine."""
    lines = [f"{describe_machine()}, {datetime.now(UTC):%Y-%m-%d}.", "", "| what | target | measured | met |"]
    lines += ["|---|---|---|---|"]
    lines += [f"| {row.what} | {row.target} | {row.measured} | {'yes' if row.met else '**missed**'} |" for row in rows]
    return "\n".join(lines) + "\n"


def describe_machine() -> str:
    """Cores and processor."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores ({model})"


def write_page(rows: Sequence[Row]) -> None:
    """Replace the table of docs/performance.md."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{render_table(rows)}\n{END}{after}")


def write_json(rows: Sequence[Row], file: Path) -> None:
    """Write all figures."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": describe_machine(), "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(found, indent=1) + "\n")
