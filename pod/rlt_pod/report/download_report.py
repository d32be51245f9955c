"""The lines in which a download reports its progress, for the operator."""

from __future__ import annotations

import re

PREFIX = "rlt-download: "
MIB = 2**20
GIB = 2**30
LINE = re.compile(rf"^{PREFIX}\d+\.\d of \d+\.\d [GM]iB \(\d+%\)$", re.MULTILINE)


def format_progress(done: int, total: int) -> str:
    """Return the line for `done` of `total` bytes."""
    percent = 100 * done // total if total else 100
    unit, name = (GIB, "GiB") if total >= GIB else (MIB, "MiB")
    return f"{PREFIX}{done / unit:.1f} of {total / unit:.1f} {name} ({percent}%)"


def read_progress(log: str) -> str | None:
    """Return the latest progress in the end of an output, such as 12.3 of 56.9 GiB (21%); None without one."""
    found = [match[0].removeprefix(PREFIX) for match in LINE.finditer(log)]
    return found[-1] if found else None
