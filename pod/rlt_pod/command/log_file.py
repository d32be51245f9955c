"""The output of a program in a bounded place. A thread writes it, so that a storage that hangs stops nothing."""

from __future__ import annotations

import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rlt_pod.command.log_parts import LogParts
from rlt_pod.download.bucket import SCHEME
from rlt_pod.report.append import append

if TYPE_CHECKING:
    from typing import Protocol

    class Place(Protocol):
        """Where the output is kept."""

        interval_s: float

        def append(self, output: bytes) -> None:
            """Raises OSError."""
            ...


MAX_FILE_BYTES = 32 * 2**20
"""Size at which the file becomes PATH.1 and a new one begins. Both together have at most twice this size."""
MAX_WAITING_BYTES = 4 * 2**20
"""Output that waits to be written. What exceeds it is left out of the file."""
HURRY_BYTES = MAX_WAITING_BYTES // 4
"""Output that is written before the interval has passed."""
CLOSE_TIMEOUT_S = 5.0
"""Time to write what waits at the end of the program."""


class RotatedFile:
    """A file that becomes PATH.1 when it is full."""

    interval_s = 0.0

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def append(self, output: bytes) -> None:
        """Open the file for each write: another pod may read it, and sees the new size when it is closed (NFS)."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if append(self._path, output) >= MAX_FILE_BYTES:
            os.replace(self._path, f"{self._path}.1")


class LogFile:
    """Appends to a file, or to a URL s3://BUCKET/PATH. Errors are printed once, and each write is tried again."""

    def __init__(self, path: str, endpoint: str | None = None) -> None:
        """`endpoint`: URL of the bucket's server. Default: Amazon's S3."""
        self._path = path
        self._place: Place = LogParts(path, endpoint) if path.startswith(SCHEME) else RotatedFile(path)
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._waiting = 0
        self._left_out = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="log file", daemon=True)
        self._thread.start()

    def write(self, output: bytes) -> None:
        """Write the output later. Does not block."""
        with self._lock:
            if self._waiting + len(output) > MAX_WAITING_BYTES:
                self._left_out += len(output)
                return
            self._waiting += len(output)
            is_much = self._waiting >= HURRY_BYTES
        self._queue.put(output)
        if is_much:
            self._hurry.set()

    def close(self) -> None:
        """Wait until the output is written, at most CLOSE_TIMEOUT_S."""
        self._queue.put(None)
        self._hurry.set()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            waiting = [self._queue.get()]
            self._hurry.wait(self._place.interval_s)
            self._hurry.clear()
            while not self._queue.empty():
                waiting.append(self._queue.get())
            ended = None in waiting
            output = b"".join(each for each in waiting if each)
            try:
                self._place.append(self._note() + output)
            except OSError as error:
                if not self._failed:
                    reason = error.strerror or error
                    print(f"run_command: cannot write {self._path}: {reason}", file=sys.stderr, flush=True)
                self._failed = True
            with self._lock:
                self._waiting -= len(output)

    def _note(self) -> bytes:
        """A line on what is left out since the last write."""
        with self._lock:
            left_out = self._left_out
            self._left_out = 0
        return f"\n[{left_out} bytes are left out]\n".encode() if left_out else b""
