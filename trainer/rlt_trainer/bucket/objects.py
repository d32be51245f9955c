"""What the trainer needs of object storage. Keys are names below the run's prefix, as paths in a run directory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from rlt_trainer.errors import TrainingError


class BucketError(TrainingError):
    """The bucket cannot be read or written, after all retries. `problem` names the object and the cause."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}")
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[type[BucketError], tuple[str, str]]:
        """Ray sends errors of workers to the driver."""
        return type(self), (self.problem, self.fix)


class Objects(Protocol):
    """The objects of one run. All methods raise BucketError, can be called from several threads, and retry."""

    url: str
    """Where the objects are, such as s3://bucket/prefix/runs/NAME."""

    def put(self, key: str, file: Path) -> None:
        """Write a file as a whole object. A reader sees the object of before, or all of this one."""
        ...

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists with other content. Returns whether it now has this content."""
        ...

    def put_if_same(self, key: str, content: bytes, version: str | None) -> str | None:
        """Write an object if it still has this version, or with None if it does not exist. Returns its new version.

        None: the object has another version, also after a lost answer to a repeated request.
        """
        ...

    def find_version(self, key: str) -> str | None:
        """Return the version of an object, which changes with its content. None: it does not exist."""
        ...

    def list(self, folder: str) -> dict[str, int]:
        """Return key -> size in bytes of all objects below a folder, such as checkpoints/. Empty: all objects."""
        ...

    def read(self, key: str) -> bytes | None:
        """Read a small object. None: it does not exist."""
        ...

    def get(self, key: str, file: Path) -> None:
        """Write an object to a file, in a folder that exists."""
        ...

    def delete(self, keys: Collection[str]) -> None:
        """Delete objects. Keys without an object are ignored."""
        ...

    def abort_uploads(self) -> int:
        """Abort the multipart uploads that a killed program left, and return their number."""
        ...
