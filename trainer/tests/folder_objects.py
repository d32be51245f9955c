"""The objects of a run as files of a folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path


class FolderObjects:
    """Objects, and the keys that were written or deleted, in order."""

    def __init__(self, folder: Path) -> None:
        self.url = f"s3://bucket/runs/{folder.name}"
        self.folder = folder
        self.written: list[str] = []
        self.deleted: list[list[str]] = []

    def put(self, key: str, file: Path) -> None:
        self.written.append(key)
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        self.written.append(key)
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_bytes(content)
        return target.read_bytes() == content

    def put_if_same(self, key: str, content: bytes, version: str | None) -> str | None:
        if self.find_version(key) != version:
            return None
        self.written.append(key)
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return self.find_version(key)

    def find_version(self, key: str) -> str | None:
        content = self.read(key)
        return None if content is None else sha256(content).hexdigest()

    def list(self, folder: str) -> dict[str, int]:
        files = {str(file.relative_to(self.folder)): file for file in self.folder.rglob("*") if file.is_file()}
        return {key: file.stat().st_size for key, file in files.items() if key.startswith(folder)}

    def read(self, key: str) -> bytes | None:
        file = self.folder / key
        return file.read_bytes() if file.exists() else None

    def get(self, key: str, file: Path) -> None:
        shutil.copyfile(self.folder / key, file)

    def delete(self, keys: Collection[str]) -> None:
        self.deleted.append(sorted(keys))
        for key in keys:
            (self.folder / key).unlink(missing_ok=True)

    def abort_uploads(self) -> int:
        return 0
