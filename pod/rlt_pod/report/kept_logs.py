"""The logs of all a run's attempts, which its directory has in attempts/N/, as a driver serves them.

It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

from __future__ import annotations

import json
from pathlib import Path

MAX_LOG_BYTES = 2**18
"""Size of a log's end that is read."""


def list_logs(run: Path) -> bytes:
    """One JSON object for each log: path relative to attempts/, size in bytes, and Unix time of the last change."""
    attempts = run / "attempts"
    found = [(file.relative_to(attempts).as_posix(), file.stat()) for file in _find_logs(attempts)]
    lines = [{"path": path, "size": each.st_size, "time": int(each.st_mtime)} for path, each in found]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read_log(run: Path, path: str) -> bytes | None:
    """The end of a log. None without a log of this path, which is only compared: it is not followed."""
    attempts = run / "attempts"
    file = next((each for each in _find_logs(attempts) if each.relative_to(attempts).as_posix() == path), None)
    if file is None:
        return None
    with file.open("rb") as opened:
        opened.seek(max(0, opened.seek(0, 2) - MAX_LOG_BYTES))
        return opened.read(MAX_LOG_BYTES)


def _find_logs(attempts: Path) -> list[Path]:
    """The files of all attempts. Links are left out: they may lead out of the folder."""
    return sorted(file for file in attempts.rglob("*") if file.is_file() and not file.is_symlink())
