"""The output of a program in a file of bounded size. A thread writes it, so that a storage that hangs stops nothing."""

from __future__ import annotations

import os
import queue
import sys
import threading
from pathlib import Path

from rlt_pod.report.append import append

MAX_FILE_BYTES = 32 * 2**20
"""Size at which the file becomes PATH.1 and a new one begins. Both together have at most twice this size."""
MAX_WAITING_BYTES = 4 * 2**20
"""Output that waits to be written. What exceeds it is left out of the file."""
CLOSE_TIMEOUT_S = 5.0
"""Time to write what waits at the end of the program."""


class LogFile:
    """Appends to a file. Errors are printed once, and each write is tried again."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._queue: queue.Queue[bytes | None] = queue.Queue()
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
        self._queue.put(output)

    def close(self) -> None:
        """Wait until the output is written, at most CLOSE_TIMEOUT_S."""
        self._queue.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            ended = None in waiting
            output = b"".join(each for each in waiting if each)
            try:
                self._append(output)
            except OSError as error:
                if not self._failed:
                    print(f"run_command: cannot write {self._path}: {error.strerror}", file=sys.stderr, flush=True)
                self._failed = True
            with self._lock:
                self._waiting -= len(output)

    def _append(self, output: bytes) -> None:
        """Open the file for each write: another pod may read it, and sees the new size when it is closed (NFS)."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            left_out = self._left_out
            self._left_out = 0
        note = f"\n[{left_out} bytes are left out]\n".encode() if left_out else b""
        if append(self._path, note + output) >= MAX_FILE_BYTES:
            os.replace(self._path, f"{self._path}.1")
