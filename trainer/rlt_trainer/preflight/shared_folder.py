"""Whether all pods can write the run directory and see each other's files in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rlt_trainer.preflight.measured import Folder

SEEN_S = 5.0
"""How long a file may take to be seen in other pods: NFS keeps what it knows of a folder for seconds (nfs(5))."""
POLL_S = 0.1
"""Between two looks: no event tells what another machine has written."""


def scratch(run_directory: str, token: str) -> Path:
    """A folder for these checks alone."""
    return Path(run_directory) / f".preflight-{token}"


def write(folder: Path, pod: str) -> str | None:
    """Write the pod's file; why not, if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / pod).write_text(pod)
    except OSError as error:
        return error.strerror or str(error)
    return None


def look(folder: Path, pod: str, error: str | None, written: Sequence[str]) -> Folder:
    """What the pod sees of the pods that have written. `error` is what became of its own file."""
    deadline = time.monotonic() + SEEN_S
    unseen = [each for each in written if not _is_there(folder / each, each)]
    while unseen and time.monotonic() < deadline:
        time.sleep(POLL_S)
        unseen = [each for each in unseen if not _is_there(folder / each, each)]
    return Folder(pod, error, tuple(unseen), free=_free(folder))


def remove(folder: Path) -> None:
    """The folder, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def _is_there(file: Path, content: str) -> bool:
    try:
        return file.read_text() == content
    except OSError:
        return False


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
