"""Archives in parts of bounded size, with a manifest of their checksums."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

PART_BYTES = 44 * 2**20
"""Below the 45 MiB that the parts may have."""
MANIFEST = "manifest.json"


def write_archive(folder: Path, archive: Path) -> None:
    """Write the files of `folder` to a tar compressed with xz, without owners and times: equal files, equal archive."""

    def clean(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in member.name:
            return None
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=clean)


def split(archive: Path, folder: Path) -> list[dict[str, Any]]:
    """Write `archive` in parts into `folder`. Return name, size and checksum of each."""
    parts: list[dict[str, Any]] = []
    with archive.open("rb") as whole:
        while data := whole.read(PART_BYTES):
            name = f"{archive.name}.{len(parts):02}"
            (folder / name).write_bytes(data)
            parts.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return parts


def write_manifest(folder: Path, commit: str, archives: dict[str, list[dict[str, Any]]]) -> None:
    """Write what join.py reads."""
    text = json.dumps({"commit": commit, "archives": archives}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
