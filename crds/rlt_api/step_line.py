"""verl's console line, `step:N - key:value - key:value`: written by rlt's trainer, read from any framework's log."""

from __future__ import annotations

import re
from collections.abc import Mapping

_START = re.compile(r"(?:^|[\s\])])step:(\d{1,18})((?: - [^\s:][^:]*:\S+)+)\s*$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMPY_SCALAR = re.compile(r"^np\.(?:float|int|uint)\d+\((.*)\)$")


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """The line as verl prints it (verl 0.9.1, verl/utils/logger/aggregate_logger.py): values are Python's own repr."""
    return " - ".join([f"step:{step}", *(f"{key}:{value!r}" for key, value in metrics.items())])


def parse_step_line(line: str) -> tuple[int, dict[str, float]] | None:
    """The step and the metrics of such a line, or None for any other line.

    Ray's prefix "(TaskRunner pid=1) ", a progress bar before it and colours are accepted, and so are numpy's scalars
    ("np.float64(0.5)", which verl prints too). Values that are no numbers are left out.
    """
