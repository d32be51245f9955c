"""Folders in a bucket: one object for each file."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path

from rlt_trainer.bucket.objects import Objects

LAST = "config.json"
"""The file without which no program loads a model: it is uploaded last and deleted first."""


def upload_folder(objects: Objects, folder: Path, prefix: str) -> dict[str, int]:
    """Upload all files of a folder to keys below `prefix`. Return name -> size in bytes."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.name == LAST, path))
    sizes = {}
    for file in files:
        name = str(file.relative_to(folder))
        objects.put(prefix + name, file)
        sizes[name] = file.stat().st_size
    return sizes


def upload_numbered(objects: Objects, folder: Path) -> None:
    """Upload a model from a folder PARENT/NUMBER to PARENT/NUMBER/. Then delete models with lower numbers."""
    parent = f"{folder.parent.name}/"
    number = int(folder.name)
    upload_folder(objects, folder, f"{parent}{number}/")
    numbers = {key: key.split("/")[1] for key in objects.list(parent)}
    lower = {key for key, found in numbers.items() if found.isdecimal() and int(found) < number}
    objects.delete({key for key in lower if key.endswith(f"/{LAST}")})
    objects.delete(lower)


def download_files(objects: Objects, prefix: str, sizes: Mapping[str, int], folder: Path, *, first: int = 0) -> None:
    """Download files below `prefix` to `folder`, which other processes of the node may do at the same time.

    `sizes`: name -> size. Files that have it, and objects that have another size, are left out. Each process begins
    with another file, `first`, and each file is downloaded once.
    """
    found = objects.list(prefix)
    names = sorted(name for name, size in sizes.items() if found.get(prefix + name) == size)
    for name in (*names[first % max(1, len(names)) :], *names[: first % max(1, len(names))]):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_name(f".{file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists() or file.stat().st_size != sizes[name]:
                objects.get(prefix + name, file)
