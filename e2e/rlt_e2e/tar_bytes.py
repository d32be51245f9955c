"""Tar archives in memory, for the tests of releases."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping


def write_tar(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of files: name -> content."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
