"""Files in a sandbox that the driver writes and reads."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress

from rlt_pod.sandbox.protocol import MAX_FILE


def put_file(path: str, content: bytes) -> str:
    """Write a file and create its folders. Return a problem, or "". A relative path begins in the programs' folder."""
    whole = _locate(path)
    try:
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        descriptor = _open_regular(whole, os.O_WRONLY | os.O_CREAT)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate()
            file.write(content)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def get_file(path: str) -> bytes | None:
    """Read a file. None if it does not exist, cannot be read, is not a regular file, or is over MAX_FILE."""
    with suppress(OSError, ValueError), os.fdopen(_open_regular(_locate(path), os.O_RDONLY), "rb") as file:
        content = file.read(MAX_FILE + 1)
        return content if len(content) <= MAX_FILE else None
    return None


def _locate(path: str) -> str:
    return os.path.join(tempfile.gettempdir(), path)


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file, but not behind a link into /proc, where this process has its key. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_dev != os.stat("/proc").st_dev:
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path} is not a regular file")
