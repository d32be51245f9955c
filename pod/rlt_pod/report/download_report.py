"""The lines in which a download reports its progress, for the operator."""

from __future__ import annotations

import re

PREFIX = "rlt-download: "
GIB = 2**30
LINE = re.compile(rf"^{PREFIX}(\d+\.\d) of (\d+\.\d) GiB \((\d+)%\)$", re.MULTILINE)


def format_progress(done: int, total: int) -> str:
    """Return the line for `done` of `total` bytes."""
    percent = 100 * done // total if total else 100
    return f"{PREFIX}{done / GIB:.1f} of {total / GIB:.1f} GiB ({percent}%)"


def read_progress(log: str) -> str | None:
    """Return the latest progress in the end of an output, such as 12.3 of 56.9 GiB (21%); None without one."""
    found = [match[0].removeprefix(PREFIX) for match in LINE.finditer(log)]
    return found[-1] if found else None
