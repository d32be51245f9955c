"""A download that continues its partial file, with progress. The source is a function that opens a connection."""

from __future__ import annotations

import errno
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, TypeVar

from rlt_pod.report.download_report import format_progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse
    from pathlib import Path

R = TypeVar("R")

CHUNK = 2**20
INTERVAL_S = 10.0
"""Time between two lines of progress."""
ATTEMPTS = 8
"""Connections in succession that deliver nothing, after which the download fails."""
MAX_DELAY_S = 30.0
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a request is repeated. Others of 400 and above are final."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a volume without space."""


class DownloadError(Exception):
    """A request that will fail again. `problem` and `fix` are sentences."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}".strip())
        self.problem = problem
        self.fix = fix


class Progress:
    """Prints how much of all files exists, at most every INTERVAL_S."""

    def __init__(self, total: int) -> None:
        self.done = 0
        self._total = total
        self._printed = 0.0

    def add(self, size: int) -> None:
        """Count bytes."""
        self.done += size
        now = time.monotonic()
        if now - self._printed >= INTERVAL_S or self.done >= self._total:
            self._printed = now
            print(format_progress(self.done, self._total), flush=True)


def fetch(open_file: Callable[[int], HTTPResponse], partial: Path, size: int, progress: Progress, name: str) -> None:
    """Download a file of `size` bytes to `partial`, from its end on.

    `open_file` requests the file from a byte on. `name`: of the file, in messages. Raises DownloadError.
    """
    existing = _measure(partial)
    if existing > size:
        partial.unlink()
        existing = 0
    progress.add(existing)
    failures = 0
    while existing < size or not partial.exists():
        before = existing
        problem = ""
        try:
            _append(open_file, partial, progress)
        except (OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise DownloadError(
                    f"{name}: {partial.parent} is full.", "Use a larger volume, or delete files."
                ) from error
            problem = str(error)
        existing = _measure(partial)
        failures = 0 if existing > before else failures + 1
        if failures >= ATTEMPTS:
            raise DownloadError(f"{name}: the server delivers nothing: {problem}.", "Start it again.")
        if failures:
            wait(failures)
    if existing > size:
        partial.unlink()
        raise DownloadError(f"{name}: the server delivers more than its {size} bytes.", "Start it again.")


def retry(request: Callable[[], R], attempts: int = ATTEMPTS) -> R:
    """Return the result of a request, which is repeated after an OSError. Raises the last one."""
    for failures in range(1, attempts):
        try:
            return request()
        except OSError:
            wait(failures)
    return request()


def wait(failures: int) -> None:
    """Wait after this number of failures in succession."""
    time.sleep(min(MAX_DELAY_S, 0.5 * 2**failures))


def _append(open_file: Callable[[int], HTTPResponse], partial: Path, progress: Progress) -> None:
    """Append what one connection delivers."""
    start = _measure(partial)
    with open_file(start) as response, partial.open("ab") as target:
        if start and response.status != 206:
            progress.done -= start
            target.truncate(0)
        while chunk := response.read(CHUNK):
            target.write(chunk)
            progress.add(len(chunk))


def _measure(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
