"""A gate: a program under test blocks on it, without a timer, until the test opens it."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """A named pipe: the program reads from it, the test writes one byte."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)  # both ends, so that open() waits on neither side: see fifo(7)
        self.wait = f"open({str(path)!r}).read(1)\n"
        """A line of Python that blocks the program until open() or close()."""

    def open(self) -> None:
        """Unblock the program, now or when it reaches the gate."""
        os.write(self._end, b".")

    def close(self) -> None:
        """Close the test's end."""
        os.close(self._end)
