"""The table of the checks, as `rlt status` prints it, from the output of the preflight."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from rlt_pod.preflight.result import MARKS
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

COLUMNS = ("CHECK", "VALUE", "LIMIT", "RESULT")


def print_preflight(
    command: Sequence[str], file: Path, *, start: Callable[[subprocess.Popen[str]], None] = lambda process: None
) -> int:
    """Run the preflight with its output, write the results to a file, and print their table. Returns the exit code.

    `start` is called with the process.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    start(process)
    checks: list[Mapping[str, Any]] = []
    assert process.stdout
    for line in process.stdout:
        if line.startswith(PREFLIGHT_PREFIX):
            checks = json.loads(line[len(PREFLIGHT_PREFIX) :])
        else:
            print(line, end="", flush=True)
    if checks:
        print(format_table(checks), flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(checks, indent=2))
    code = process.wait()
    return code if code >= 0 else 128 - code


def format_table(checks: Sequence[Mapping[str, Any]]) -> str:
    """Format the results as lines with columns of equal width."""
    rows = [COLUMNS, *map(_format_row, checks)]
    widths = [max(map(len, column)) for column in zip(*rows)]  # noqa: B905 (Python 3.8)
    padded = ((cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)  # noqa: B905
    return "\n".join("  ".join(row).rstrip() for row in padded)


def _format_row(check: Mapping[str, Any]) -> tuple[str, ...]:
    remedy = f" {check['remedy']}" if check.get("remedy") else ""
    name = f"{MARKS[check['result']]} {check['name']}"
    return name, check.get("value") or "", check.get("threshold") or "", f"{check['message']}{remedy}"
