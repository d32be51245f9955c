"""Measurement of the run directory in a pod: whether it can be written, and which pods' files are visible."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rlt_trainer.preflight.measurements import Folder

VISIBILITY_TIMEOUT_S = 5.0
"""Timeout for a file to become visible in other pods. NFS caches directory attributes for seconds (nfs(5))."""
POLL_INTERVAL_S = 0.1
"""Interval between reads. There are no events for files that another node writes."""


def get_scratch_folder(run_directory: str, token: str) -> Path:
    """Return the folder for the files of this preflight."""
    return Path(run_directory) / f".preflight-{token}"


def write_file(folder: Path, pod: str) -> str | None:
    """Write the pod's file. Return the error, or None."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / pod).write_text(pod)
    except OSError as error:
        return error.strerror or str(error)
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
    shutil.rmtree(folder, ignore_errors=True)


def _has_content(file: Path, content: str) -> bool:
    try:
        return file.read_text() == content
    except OSError:
        return False


def _measure_free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
