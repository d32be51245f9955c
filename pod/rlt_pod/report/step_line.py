"""verl's console line, `step:N - key:value - key:value`: rlt's trainer prints it, and rlt parses it in any log."""

from __future__ import annotations

import re
from collections.abc import Mapping

_START = re.compile(r"(?:^|[\s\])])step:([0-9]{1,18}) - ")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_NUMPY_SCALAR = re.compile(r"np\.[a-z]+[0-9]*\((.*)\)")


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """Format the line as verl 0.9.1 does (verl/utils/logger/aggregate_logger.py), with Python's repr of the values."""
    return " - ".join([f"step:{step}", *(f"{key}:{value!r}" for key, value in metrics.items())])


def parse_step_line(line: str) -> tuple[int, dict[str, float]] | None:
    """Return the step and the metrics of such a line; None for any other line, or for one without metrics.

    The prefixes of logs are accepted: Ray's "(TaskRunner pid=1) ", a progress bar, colors; numpy's "np.float64(0.5)" is
    accepted as a value. Values that are not numbers are skipped.
    """
    plain = _COLOR.sub("", line)
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
