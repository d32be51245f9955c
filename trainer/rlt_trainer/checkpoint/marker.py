"""Which checkpoints are whole: written under another name, renamed, then marked. A crash leaves no doubt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

COMPLETE = "complete"
"""The file in a checkpoint's folder that says that it is whole."""
LATEST = "latest"
"""The file beside the checkpoints that names the latest whole one, for people and other programs."""


def partial_directory(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step is written before it is whole."""
    return checkpoints / f"step-{step}.tmp"


def checkpoint_directory(checkpoints: Path, step: int) -> Path:
    """Where it is once it is whole."""
    return checkpoints / f"step-{step}"


def prepare(checkpoints: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` to."""
    partial = partial_directory(checkpoints, step)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def commit(checkpoints: Path, step: int) -> None:
    """Declare what lies in the partial folder a whole checkpoint. An earlier one of the same step is replaced."""
    partial, final = partial_directory(checkpoints, step), checkpoint_directory(checkpoints, step)
    for path in (*sorted(partial.rglob("*")), partial):
        _sync(path)
    if final.exists():
        (final / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(final)
    partial.rename(final)
    _sync(checkpoints)
    _write(final / COMPLETE, f"{step}\n")
    _write(checkpoints / f"{LATEST}.tmp", f"{final.name}\n")
    (checkpoints / f"{LATEST}.tmp").rename(checkpoints / LATEST)
    _sync(checkpoints)


def latest_complete(checkpoints: Path) -> int | None:
    """The step of the latest whole checkpoint, by the marks in the folders; None if there is none."""
    marked = checkpoints.glob(f"step-*/{COMPLETE}")
    steps = [int(mark.parent.name.removeprefix("step-")) for mark in marked if mark.parent.suffix != ".tmp"]
    return max(steps, default=None)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _sync(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
