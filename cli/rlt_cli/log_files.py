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
PEEKED = 4096
"""Bytes at the beginning of a log that are examined."""
TEXT_CONTROL = b"\t\n\r\x1b\f\b"
"""Control characters that logs contain."""
MAX_CONTROL = 0.05
"""Maximum share of other control characters in a text."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
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
        self.notes: list[str] = []
        """What is unusual about them."""

    def open_all(self) -> Iterator[BinaryIO]:
        """Open each log in binary mode, and close it before the next one. Raises one of DAMAGED."""
        for path in self._list_files():
            self.path = path
            for name, log in _open_file(path):
                self.names.append(name)
                if note := _describe_beginning(log):
                    self.notes.append(f"{name}: {note}")
                yield log

    def _list_files(self) -> Iterator[str]:
        for path in self._paths:
            if path == STANDARD_INPUT or not Path(path).is_dir():
                yield path
            else:
                yield from (str(each) for each in sorted(Path(path).rglob("*")) if each.is_file())


def _describe_beginning(log: BinaryIO) -> str:
    """What is unusual about the beginning of a log; "" if it is text, or cannot be read in advance."""
    peek = getattr(log, "peek", None)
    if peek is None:
        return ""
    beginning = peek(PEEKED)[:PEEKED]
    if not beginning:
        return "is empty"
    control = sum(byte < 32 and byte not in TEXT_CONTROL for byte in beginning) - beginning.count(0)
    is_binary = control > MAX_CONTROL * len(beginning) and not beginning.startswith(UTF_16)
    return "is not a text; what looks like text in it was searched" if is_binary else ""


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
