"""Append to a file of lines that other processes read. It needs only Python 3.8 and its standard library."""

from __future__ import annotations

import os
from pathlib import Path


def append(path: Path, content: bytes) -> int:
    """Append all of `content`, or nothing if an error occurs, such as a full disk. Returns the size of the file.

    Part of a line would make the next one unreadable. Raises OSError.
    """
    with path.open("ab", buffering=0) as file:
        start = os.fstat(file.fileno()).st_size
        try:
            written = 0
            while written < len(content):
                written += file.write(content[written:]) or 0
        except OSError:
            file.truncate(start)
            raise
    return start + len(content)
