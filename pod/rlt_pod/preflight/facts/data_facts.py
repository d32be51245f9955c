"""What a process measures about the volumes, files and caches of its pod."""

from __future__ import annotations

import getpass
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CACHES = ("FLASHINFER_WORKSPACE_BASE", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT")
"""Variables with folders that the libraries write to."""


@dataclass(frozen=True)
class DataFacts:
    """Files and caches of one pod."""

    pod: str
    is_head: bool
    unreadable: Mapping[str, str]
    """Files and folders of the training that this pod cannot read -> reason."""
    unwritable: Mapping[str, str]
    """Variable of CACHES -> folder and error."""
    has_user: bool
    """Whether the user ID has a name, from USER, LOGNAME or an account."""


def measure_data(pod: str, paths: Sequence[str], *, is_head: bool) -> DataFacts:
    """Measure the pod of this process."""
    return DataFacts(
        pod=pod,
        is_head=is_head,
        unreadable=find_unreadable(paths),
        unwritable=find_unwritable(os.environ),
        has_user=_has_user(),
    )


def find_unwritable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of CACHES whose folder this process cannot write -> folder and error.

    A hub that is offline writes nothing.
    """
    offline = environment.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    names = [name for name in CACHES if environment.get(name) and not (offline and name == "HF_HOME")]
    errors = {name: _try_write(Path(environment[name])) for name in names}
    return {name: f"{environment[name]}: {error}" for name, error in errors.items() if error is not None}


def find_unreadable(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths that cannot be read -> reason. A folder is readable if every file in it is."""
    reasons = {path: _try_read(Path(path)) for path in paths}
    return {path: reason for path, reason in reasons.items() if reason is not None}


def _try_write(folder: Path) -> str | None:
    """Return the error, or None if a file in the folder can be written, which is created like the libraries do."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=str(folder)) as file:
            file.write(b"rlt")
    except OSError as error:
        return error.strerror or str(error)
    return None


def _try_read(path: Path) -> str | None:
    """Return the error, or None if the path can be read."""
    try:
        files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
        if not files:
            return "the folder is empty"
        for file in files:
            with file.open("rb") as opened:
                opened.read(1)
    except OSError as error:
        file_name = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        return f"{error.strerror or error}{file_name}"
    return None


def _has_user() -> bool:
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return False
    return True
