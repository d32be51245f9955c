"""The warnings in NCCL's log files, for the output of a program that failed.

The output is what the operator and `rlt diagnose` read to find the cause.
"""

from __future__ import annotations

import glob
import os

VARIABLE = "NCCL_DEBUG_FILE"
"""Path of NCCL's log, with %h for the host name and %p for the process ID. All pods share the folder."""
WARNING = b" NCCL WARN "
MAX_FILES = 256
MAX_READ_BYTES = 256 * 1024
"""The end of each file that is read."""
MAX_LINES_OF_FILE = 5
MAX_LINES = 100


def read_nccl_warnings(pattern: str) -> bytes:
    """The first warnings of each file, below a heading. Empty without warnings. `pattern`: the value of VARIABLE."""
    paths = glob.glob(glob.escape(pattern).replace("%h", "*").replace("%p", "*"))
    lines = [line for path in sorted(paths)[:MAX_FILES] for line in _read_warnings(path)][:MAX_LINES]
    if not lines:
        return b""
    return b"\n".join([f"\nrun_command: warnings in {pattern}:".encode(), *lines, b""])


def _read_warnings(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_READ_BYTES))
            content = file.read(MAX_READ_BYTES)
    except OSError:
        return []
    return [line for line in content.splitlines() if WARNING in line][:MAX_LINES_OF_FILE]
