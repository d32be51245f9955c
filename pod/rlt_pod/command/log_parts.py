"""The output of a program in a bucket: PATH/START-NUMBER, in parts, because an object cannot be appended to.

START is the Unix time of the program in nanoseconds: names are sorted by time. Each program has other names, so that
none replaces the parts of another.
"""

from __future__ import annotations

import time

from rlt_pod.download.bucket import Location, Server
from rlt_pod.download.transfer import DownloadError

PART_BYTES = 2**20
"""Size at which a part is complete. Until then, each write puts the whole part."""
MAX_PARTS = 64
"""The oldest parts are deleted."""
MAX_FAILED_BYTES = 4 * 2**20
"""Maximum size of a part that the server does not take. Its first bytes are left out."""
TIMEOUT_S = 20.0


class LogParts:
    """Appends to the parts at a URL s3://BUCKET/PATH."""

    interval_s = 30.0
    """Time for which output is collected before a write."""

    def __init__(self, url: str, endpoint: str | None) -> None:
        self._prefix = f"{url}/{time.time_ns()}"
        self._server = Server(endpoint, timeout_s=TIMEOUT_S)
        self._number = 0
        self._part = b""

    def append(self, output: bytes) -> None:
        """Put the part with this output. Raises OSError: the next call puts it again."""
        self._part = (self._part + output)[-MAX_FAILED_BYTES:]
        if not self._part:
            return
        try:
            self._server.put_object(self._locate(self._number), self._part)
            if len(self._part) >= PART_BYTES:
                self._part = b""
                self._number += 1
                if self._number >= MAX_PARTS:
                    self._server.delete_object(self._locate(self._number - MAX_PARTS))
        except DownloadError as error:
            raise OSError(error.problem) from error

    def _locate(self, number: int) -> Location:
        return Location("spec.storage.bucket", f"{self._prefix}-{number:06}")
