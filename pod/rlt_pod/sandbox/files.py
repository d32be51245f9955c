"""Files in a sandbox that the driver writes and reads."""

from __future__ import annotations

import os
import stat
import tempfile
from collections import deque
from contextlib import suppress
from typing import Any

from rlt_pod.sandbox.protocol import MAX_FILE

MAX_LISTED = 50
"""Maximum number of listed files."""
MAX_ENTRIES = 10_000
"""Maximum number of entries of folders that are read for a list."""


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


def list_files() -> list[dict[str, Any]]:
    """List the regular files in the programs' folder and below, the newest first: path and size in bytes."""
    root = tempfile.gettempdir()
    found = []
    folders = deque([root])
    left = MAX_ENTRIES
    while folders and left > 0:
        with suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    break
                with suppress(OSError):  # it has ended meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime, os.path.relpath(entry.path, root), status.st_size))
    newest = sorted(found, reverse=True)[:MAX_LISTED]
    return [{"path": path.encode(errors="replace").decode(), "size": size} for _, path, size in newest]


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
