"""The metrics of each step in a run as a file of JSON lines, {"step": N, "name": value, …}, and how a driver serves it.

It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

METRICS_FILE = "metrics.jsonl"
"""Name of the file in the run directory."""
CONTINUED = ".1"
"""Suffix of the file with the lines before, where the file has a bounded size."""
_STEP = re.compile(rb'\{"step": (\d+)[,}]')


def format_step(step: int, metrics: Mapping[str, float]) -> bytes:
    """The line of a step. NaN and infinities, which JSON does not support, become null."""
    values = {name: value if math.isfinite(value) else None for name, value in metrics.items() if name != "step"}
    return json.dumps({"step": step, **values}).encode() + b"\n"


def read_history(file: Path, *, after: int) -> bytes:
    """Read the lines after the step `after`, each step once. Raises OSError.

    A resumed run starts again at its checkpoint: a line replaces all earlier lines of the same and later steps.
    """
    lines: list[tuple[int, bytes]] = []
    for number, line in iterate_steps(file):
        while lines and lines[-1][0] >= number:
            lines.pop()
        lines.append((number, line))
    return b"".join(line for number, line in lines if number > after)


def iterate_steps(file: Path) -> Iterator[tuple[int, bytes]]:
    """The steps of the complete lines, and the lines. None before the first step."""
    for part in (file.with_name(file.name + CONTINUED), file):
        if not part.exists():
            continue
        with part.open("rb") as lines:
            for line in lines:
                start = _STEP.match(line)
                if start and line.endswith(b"\n"):  # otherwise it is being written, or a crash left it incomplete
                    yield int(start[1]), line
