"""Measurement of the run directory in a pod: whether it can be written, and which pods' files are visible."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

VISIBILITY_TIMEOUT_S = 5.0
"""Timeout for a file to become visible in other pods. NFS caches directory attributes for seconds (nfs(5))."""
POLL_INTERVAL_S = 0.1
"""Interval between reads. There are no events for files that another node writes."""


@dataclass(frozen=True)
class Folder:
    """The run directory in one pod."""

    pod: str
    error: str | None
    """The error of writing to it, if any."""
    unseen: tuple[str, ...] = ()
    """Pods whose file this pod does not see."""
    free: int = 0
    """Free bytes."""


def get_scratch_folder(run_directory: str, token: str) -> Path:
    """Return the folder for the files of this preflight."""
    return Path(run_directory) / f".preflight-{token}"


def write_file(folder: Path, pod: str) -> str | None:
    """Write the pod's file as a checkpoint is written: to a new name, fsync, rename, fsync. Return the error, or None.

    fsync of the folder makes the rename durable (fsync(2)).
    """
    step = "write"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{pod}.new").open("w") as file:
            file.write(pod)
            file.flush()
            step = "fsync"
            os.fsync(file.fileno())
        step = "rename"
        os.replace(str(folder / f"{pod}.new"), str(folder / pod))
        step = "fsync of the folder"
        descriptor = os.open(str(folder), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = error.strerror or str(error)
        return reason if step == "write" else f"{step}: {reason}"
    return None


def find_files(folder: Path, pod: str, error: str | None, written: Sequence[str]) -> Folder:
    """Find the files of the pods in `written`. `error` is the pod's error from write_file."""
    deadline = time.monotonic() + VISIBILITY_TIMEOUT_S
    unseen = [each for each in written if not _has_content(folder / each, each)]
    while unseen and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
        unseen = [each for each in unseen if not _has_content(folder / each, each)]
    return Folder(pod, error, tuple(unseen), free=_measure_free(folder))


def remove_folder(folder: Path) -> None:
    """Remove the folder, if it exists."""
    shutil.rmtree(str(folder), ignore_errors=True)


def _has_content(file: Path, content: str) -> bool:
    try:
        return file.read_text() == content
    except OSError:
        return False


def _measure_free(folder: Path) -> int:
    try:
        return shutil.disk_usage(str(folder)).free
    except OSError:
        return 0
