"""SHA256SUMS, in the format that `sha256sum --check` reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write_checksums(folder: Path) -> Path:
    """Write the hashes of all files below the folder, and return the file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    target = folder / NAME
    target.write_text("".join(f"{hash_file(file)}  {file.relative_to(folder)}\n" for file in files))
    return target


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
