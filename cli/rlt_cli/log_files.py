"""The logs that `rlt diagnose` reads: files, folders, archives such as `rlt bundle`'s, and standard input."""

from __future__ import annotations

import gzip
import sys
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

STANDARD_INPUT = "-"
ARCHIVES = (".tar", ".tar.gz", ".tgz")
DAMAGED = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error)
"""What opening or reading a damaged archive raises."""


class LogFiles:
    """The logs of some paths, opened one after another."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.path = ""
        """The path that was opened last."""
        self.names: list[str] = []
        """The names of the logs that were opened."""

    def open_all(self) -> Iterator[BinaryIO]:
        """Open each log in binary mode, and close it before the next one. Raises one of DAMAGED."""
        for path in self._list_files():
            self.path = path
            for name, log in _open_file(path):
                self.names.append(name)
                yield log

    def _list_files(self) -> Iterator[str]:
        for path in self._paths:
            if path == STANDARD_INPUT or not Path(path).is_dir():
                yield path
            else:
                yield from (str(each) for each in sorted(Path(path).rglob("*")) if each.is_file())


def _open_file(path: str) -> Iterator[tuple[str, BinaryIO]]:
    """Open a file, or the files of an archive. Yields name and stream."""
    if path == STANDARD_INPUT:
        yield path, sys.stdin.buffer
    elif path.endswith(ARCHIVES):
        with tarfile.open(path) as archive:
            for member in archive:
                if (log := archive.extractfile(member)) is not None:
                    yield f"{path}:{member.name}", cast(BinaryIO, log)
    elif path.endswith(".gz"):
        with gzip.open(path) as compressed:
            yield path, cast(BinaryIO, compressed)
    else:
        with open(path, "rb") as file:
            yield path, file
