"""Atomic checkpoints: written to a temporary folder, renamed, then marked complete."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

COMPLETE = "complete"
"""The file in a checkpoint's folder that marks it as complete: a Mark as JSON."""
LATEST = "latest"
"""The file next to the checkpoints that names the latest complete one, for people and other programs."""
FORMAT = 1
"""Version of the folder's contents."""


class DamagedCheckpointError(Exception):
    """A complete checkpoint is damaged. The message states the damage."""


@dataclass(frozen=True)
class Mark:
    """The marker of a complete checkpoint."""

    step: int
    """Number of training steps taken."""
    number: int
    """Sequence number among the checkpoints of the run directory. The highest is the latest, regardless of the step."""
    files: dict[str, int]
    """Path in `folder` -> size in bytes."""
    score: float | None = None
    """Validation score at this step."""
    origin: str | None = None
    """The checkpoint that the run started from (checkpoint.resumeFromPath)."""
    folder: str = ""
    """Of a checkpoint in a bucket, and of its copy on a disk: where the files are in the checkpoint's folder, with a
    slash at the end."""
    format: int = FORMAT


def partial_directory(checkpoints: Path, step: int) -> Path:
    """The folder of an incomplete checkpoint."""
    return checkpoints / f"step-{step}.tmp"


def checkpoint_directory(checkpoints: Path, step: int) -> Path:
    """The folder of a complete checkpoint."""
    return checkpoints / f"step-{step}"


def parse_step(directory: Path) -> int:
    """Parse the step from the name of a checkpoint's folder."""
    return int(directory.name.removeprefix("step-"))


def prepare(checkpoints: Path, step: int) -> Path:
    """Create an empty folder for the checkpoint of `step`."""
    partial = partial_directory(checkpoints, step)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def commit(checkpoints: Path, step: int, *, score: float | None = None, origin: str | None = None) -> None:
    """Mark the checkpoint in the partial folder as complete. It replaces an earlier checkpoint of the same step.

    All files are written before any is renamed: a full disk leaves the earlier checkpoint unchanged.
    """
    partial = partial_directory(checkpoints, step)
    final = checkpoint_directory(checkpoints, step)
    files = {str(path.relative_to(partial)): path.stat().st_size for path in partial.rglob("*") if path.is_file()}
    number = 1 + max((mark.number for mark in read_marks(checkpoints).values()), default=0)
    mark = Mark(step=step, number=number, files=files, score=score, origin=origin)
    unmarked = partial / f"{COMPLETE}.tmp"
    latest = checkpoints / f"{LATEST}.tmp"
    unmarked.write_text(json.dumps(asdict(mark)) + "\n", encoding="utf-8")
    latest.write_text(f"{final.name}\n", encoding="utf-8")
    for path in (*sorted(partial.rglob("*")), partial, latest):
        fsync(path)

    if final.exists():
        remove(final)
    partial.rename(final)
    fsync(checkpoints)
    (final / unmarked.name).rename(final / COMPLETE)
    fsync(final)
    latest.rename(checkpoints / LATEST)
    fsync(checkpoints)


def remove(directory: Path) -> None:
    """Delete a checkpoint. Atomic for readers: the folder is renamed first."""
    removed = directory.with_name(f"{directory.name}.removed.tmp")
    shutil.rmtree(removed, ignore_errors=True)
    directory.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)  # the next run removes the rest


def remove_partial(checkpoints: Path) -> None:
    """Delete folders that interrupted runs left partially written or deleted."""
    for directory in checkpoints.glob("step-*.tmp"):
        shutil.rmtree(directory, ignore_errors=True)


def read_mark(directory: Path) -> Mark:
    """Read the marker of a checkpoint.

    Raises DamagedCheckpointError if it cannot be read, ValueError if it has another format version.
    """
    try:
        content = json.loads((directory / COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"its file {COMPLETE} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise DamagedCheckpointError(f"its file {COMPLETE} is not a JSON object")
    found = content.get("format")
    if found != FORMAT:
        raise ValueError(
            f"{directory} has checkpoint format {found}, but this version of rlt reads format {FORMAT}: use the "
            "version that wrote it, or set checkpoint.resume: never to start from the beginning."
        )
    try:
        return Mark(**content)
    except TypeError as error:
        raise DamagedCheckpointError(f"its file {COMPLETE} is invalid ({error})") from error


def read_marks(checkpoints: Path) -> dict[Path, Mark]:
    """Read the markers of all complete checkpoints, latest first. Skips markers that cannot be read."""
    found: dict[Path, Mark] = {}
    for directory in list_marked(checkpoints):
        try:
            found[directory] = read_mark(directory)
        except (DamagedCheckpointError, ValueError):
            continue
    return dict(sorted(found.items(), key=lambda item: item[1].number, reverse=True))


def list_marked(checkpoints: Path) -> list[Path]:
    """List all folders with a marker, readable or not, the last step first."""
    found = [mark.parent for mark in checkpoints.glob(f"step-*/{COMPLETE}")]
    return sorted((path for path in found if path.suffix != ".tmp"), key=parse_step, reverse=True)


def find_latest_step(checkpoints: Path) -> int | None:
    """Return the step of the latest complete checkpoint by the markers in the folders; None if there is none."""
    return next((mark.step for mark in read_marks(checkpoints).values()), None)


def verify(directory: Path, mark: Mark) -> None:
    """Raise DamagedCheckpointError if a file is missing or its size differs from the marker."""
    for name, size in mark.files.items():
        path = directory / mark.folder / name
        if not path.is_file():
            raise DamagedCheckpointError(f"its file {name} is missing")
        if path.stat().st_size != size:
            raise DamagedCheckpointError(f"its file {name} has {path.stat().st_size} bytes instead of {size}")


def fsync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
