"""Which checkpoints are whole: written under another name, renamed, then marked. A crash leaves no doubt."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

COMPLETE = "complete"
"""The file in a checkpoint's folder that says that it is whole: a Mark as JSON."""
LATEST = "latest"
"""The file beside the checkpoints that names the newest whole one, for people and other programs."""
FORMAT = 2
"""Of the folder's content. 1 had neither a list of its files nor the driver's state."""


class DamagedCheckpointError(Exception):
    """A checkpoint was whole once and is no longer. The message says what is wrong with it."""


@dataclass(frozen=True)
class Mark:
    """What a whole checkpoint says of itself."""

    step: int
    """Steps that had been taken."""
    number: int
    """How many were written to the same folder until then: the higher one is the newer one, whatever the step."""
    files: dict[str, int]
    """Path in the checkpoint's folder -> size in bytes."""
    score: float | None = None
    """Validation score at this step."""
    origin: str | None = None
    """The checkpoint that its run began with (checkpoint.resumeFromPath)."""
    format: int = FORMAT


def partial_directory(checkpoints: Path, step: int) -> Path:
    """Where the checkpoint of a step is written before it is whole."""
    return checkpoints / f"step-{step}.tmp"


def checkpoint_directory(checkpoints: Path, step: int) -> Path:
    """Where it is once it is whole."""
    return checkpoints / f"step-{step}"


def step_of(directory: Path) -> int:
    """The step of a checkpoint's folder, by its name."""
    return int(directory.name.removeprefix("step-"))


def prepare(checkpoints: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` to."""
    partial = partial_directory(checkpoints, step)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def commit(checkpoints: Path, step: int, *, score: float | None = None, origin: str | None = None) -> None:
    """Declare what lies in the partial folder a whole checkpoint. An earlier one of the same step is replaced.

    Everything is written before anything is renamed: a full disk leaves the earlier one as it is.
    """
    partial, final = partial_directory(checkpoints, step), checkpoint_directory(checkpoints, step)
    files = {str(path.relative_to(partial)): path.stat().st_size for path in partial.rglob("*") if path.is_file()}
    number = 1 + max((mark.number for mark in readable_marks(checkpoints).values()), default=0)
    mark = Mark(step=step, number=number, files=files, score=score, origin=origin)
    unmarked, latest = partial / f"{COMPLETE}.tmp", checkpoints / f"{LATEST}.tmp"
    unmarked.write_text(json.dumps(asdict(mark)) + "\n", encoding="utf-8")
    latest.write_text(f"{final.name}\n", encoding="utf-8")
    for path in (*sorted(partial.rglob("*")), partial, latest):
        sync(path)

    if final.exists():
        remove(final)
    partial.rename(final)
    sync(checkpoints)
    (final / unmarked.name).rename(final / COMPLETE)
    sync(final)
    latest.rename(checkpoints / LATEST)
    sync(checkpoints)


def remove(directory: Path) -> None:
    """Delete a checkpoint: at once for whoever looks for whole ones."""
    removed = directory.with_name(f"{directory.name}.removed.tmp")
    shutil.rmtree(removed, ignore_errors=True)
    directory.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)  # what is left of it is swept by the next run


def sweep(checkpoints: Path) -> None:
    """Delete what killed runs left half-written or half-deleted."""
    for left in checkpoints.glob("step-*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def read_mark(directory: Path) -> Mark:
    """What the checkpoint says of itself.

    Raises DamagedCheckpointError if it cannot be read, ValueError if another version of rlt has written it.
    """
    try:
        content = json.loads((directory / COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"its file {COMPLETE} cannot be read ({error})") from error
    found = content.get("format") if isinstance(content, dict) else 1  # which was the step alone
    if found != FORMAT:
        raise ValueError(
            f"{directory} has the checkpoint format {found}, and this version of rlt reads {FORMAT}: use the version "
            "that wrote it, or checkpoint.resume: never to start anew."
        )
    try:
        return Mark(**content)
    except TypeError as error:
        raise DamagedCheckpointError(f"its file {COMPLETE} is not what was written ({error})") from error


def readable_marks(checkpoints: Path) -> dict[Path, Mark]:
    """The whole checkpoints, the newest first. Those whose mark cannot be read are left out."""
    found: dict[Path, Mark] = {}
    for directory in with_a_mark(checkpoints):
        try:
            found[directory] = read_mark(directory)
        except (DamagedCheckpointError, ValueError):
            continue
    return dict(sorted(found.items(), key=lambda item: item[1].number, reverse=True))


def with_a_mark(checkpoints: Path) -> list[Path]:
    """All folders that have a mark, readable or not: the last step first."""
    found = [mark.parent for mark in checkpoints.glob(f"step-*/{COMPLETE}")]
    return sorted((path for path in found if path.suffix != ".tmp"), key=step_of, reverse=True)


def latest_complete(checkpoints: Path) -> int | None:
    """The step of the newest whole checkpoint, by the marks in the folders; None if there is none."""
    return next((mark.step for mark in readable_marks(checkpoints).values()), None)


def verify(directory: Path, mark: Mark) -> None:
    """Raises DamagedCheckpointError if a file is missing, or has another size than it had."""
    for name, size in mark.files.items():
        path = directory / name
        if not path.is_file():
            raise DamagedCheckpointError(f"its file {name} is missing")
        if path.stat().st_size != size:
            raise DamagedCheckpointError(f"its file {name} has {path.stat().st_size} bytes and was written with {size}")


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
