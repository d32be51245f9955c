"""A gate that a program of a test waits at, without a clock, until the test opens it."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """A named pipe: the program reads from it, the test writes one byte."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)  # both ends, so that open() waits on neither side: see fifo(7)
        self.wait = f"open({str(path)!r}).read(1)\n"
        """The line of Python that the program waits in. It goes on at close(), too."""

    def open(self) -> None:
        """Let the program go on, now or when it comes to the gate."""
        os.write(self._end, b".")

    def close(self) -> None:
        """Remove the test's end."""
        os.close(self._end)
