"""Archives whose bytes depend on the files in them alone, so that anyone can build them again and compare."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path


def write_archive(folder: Path, target: Path, *, time: int) -> None:
    """Write a folder and everything in it to a .tar.gz. `time`, in Unix time, is the time of each file and of `target`.

    Links are replaced by the files that they point to.
    """
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive,
    ):
        for path in [folder, *sorted(folder.rglob("*"))]:
            entry = archive.gettarinfo(path, str(path.relative_to(folder.parent)))
            entry.mtime = time
            entry.mode = 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644
            entry.uid = 0
            entry.gid = 0
            entry.uname = ""
            entry.gname = ""
            if path.is_dir():
                archive.addfile(entry)
            else:
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    os.utime(target, (time, time))
