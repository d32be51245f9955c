"""verl's console line, `step:N - key:value - key:value`: written by rlt's trainer, read from any framework's log."""

from __future__ import annotations

import re
from collections.abc import Mapping

_START = re.compile(r"(?:^|[\s\])])step:([0-9]{1,18}) - ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMPY_SCALAR = re.compile(r"np\.[a-z]+[0-9]*\((.*)\)")


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """The line as verl prints it (verl 0.9.1, verl/utils/logger/aggregate_logger.py): values are Python's own repr."""
    return " - ".join([f"step:{step}", *(f"{key}:{value!r}" for key, value in metrics.items())])


def parse_step_line(line: str) -> tuple[int, dict[str, float]] | None:
    """The step and the metrics of such a line, or None for any other line, one without metrics included.

    What may stand around it in a log is accepted: Ray's "(TaskRunner pid=1) ", a progress bar, colours, and numpy's
    "np.float64(0.5)" as a value. Values that are no numbers are left out.
    """
    plain = _COLOUR.sub("", line)
    start = _START.search(plain)
    if start is None:
        return None
    metrics = {}
    for pair in plain[start.end() :].split(" - "):
        key, _, text = pair.strip().rpartition(":")
        value = _number(text)
        if key and value is not None:
            metrics[key] = value
    return (int(start[1]), metrics) if metrics else None


def _number(text: str) -> float | None:
    scalar = _NUMPY_SCALAR.fullmatch(text)
    try:
        return float(scalar[1] if scalar else text)
    except ValueError:
        return None
