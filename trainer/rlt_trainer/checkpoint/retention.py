"""Which checkpoints stay when a new one is whole, and who is reading one."""

from __future__ import annotations

import fcntl
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rlt_trainer.checkpoint import marker
from rlt_trainer.checkpoint.marker import COMPLETE, Mark


def superseded(
    marks: Mapping[Path, Mark], *, max_to_keep: int | None, keep_best: bool, pinned: Collection[Path] = ()
) -> list[Path]:
    """Which of `marks` (the newest first) can go.

    The newest `max_to_keep` stay (None: all), the one with the highest score, the later one of equals, if `keep_best`,
    and `pinned`, none of which count.
    """
    if max_to_keep is None:
        return []
    kept = {*list(marks)[:max_to_keep], *pinned}
    scored = {path: mark.score for path, mark in marks.items() if mark.score is not None}
    if keep_best and scored:
        kept.add(max(scored, key=lambda path: (scored[path], marks[path].number)))
    return [path for path in marks if path not in kept]


def remove_superseded(
    checkpoints: Path, *, max_to_keep: int | None, keep_best: bool, pinned: Collection[Path] = ()
) -> None:
    """Delete those that can go and that nobody is reading; what cannot be deleted is warned of."""
    marks = marker.readable_marks(checkpoints)
    for directory in superseded(marks, max_to_keep=max_to_keep, keep_best=keep_best, pinned=pinned):
        try:
            if not _is_read(directory):
                marker.remove(directory)
        except OSError as error:
            warnings.warn(f"The old checkpoint {directory} could not be deleted: {error}", stacklevel=2)


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Nobody else deletes the checkpoint in the meantime (flock(2), which NFS from version 4 on honours)."""
    with (directory / COMPLETE).open("rb") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_SH)
        except OSError as error:
            warnings.warn(f"{directory} cannot be kept from deletion while it is read: {error}", stacklevel=2)
        yield


def _is_read(directory: Path) -> bool:
    with (directory / COMPLETE).open("r+b") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
