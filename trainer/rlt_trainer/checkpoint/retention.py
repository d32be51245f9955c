"""Retention: deletion of old checkpoints, and locks on checkpoints that are being read."""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rlt_trainer.checkpoint import marker
from rlt_trainer.checkpoint.marker import COMPLETE, Mark


def find_superseded(
    marks: Mapping[Path, Mark], *, max_to_keep: int, keep_best: bool, pinned: Collection[Path] = ()
) -> list[Path]:
    """Return the checkpoints in `marks` (latest first) to delete.

    Retained are the latest `max_to_keep` (0: all); with `keep_best` the one with the highest score, the later one of
    equals; and `pinned`. The last two do not count towards `max_to_keep`.
    """
    if max_to_keep == 0:
        return []
    retained = {*list(marks)[:max_to_keep], *pinned}
    scored = {path: mark.score for path, mark in marks.items() if mark.score is not None}
    if keep_best and scored:
        retained.add(max(scored, key=lambda path: (scored[path], marks[path].number)))
    return [path for path in marks if path not in retained]


def remove_superseded(checkpoints: Path, *, max_to_keep: int, keep_best: bool, pinned: Collection[Path] = ()) -> None:
    """Delete superseded checkpoints that are not being read. Warns if one cannot be deleted."""
    marks = marker.read_marks(checkpoints)
    for directory in find_superseded(marks, max_to_keep=max_to_keep, keep_best=keep_best, pinned=pinned):
        try:
            if not _is_locked(directory):
                marker.remove(directory)
        except OSError as error:
            warnings.warn(f"The old checkpoint {directory} could not be deleted: {error}", stacklevel=2)


@contextmanager
def lock_for_reading(directory: Path) -> Iterator[None]:
    """Lock the checkpoint against deletion by other processes (flock(2), supported by NFS from version 4)."""
    with (directory / COMPLETE).open("rb") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_SH)
        except OSError as error:
            warnings.warn(f"{directory} cannot be locked against deletion: {error}", stacklevel=2)
        yield


def _is_locked(directory: Path) -> bool:
    with (directory / COMPLETE).open("r+b") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
