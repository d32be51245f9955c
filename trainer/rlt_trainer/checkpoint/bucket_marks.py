"""Checkpoints in a bucket: checkpoints/step-N/ has the same files as on a volume, and the marker is written last.

Rank 0 has a copy of all markers in its folder of checkpoints, and alone changes them. A checkpoint counts if its marker
exists and the objects have the sizes in it.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.bucket.folders import download_files
from rlt_trainer.bucket.objects import BucketError, Objects
from rlt_trainer.checkpoint import marker, retention
from rlt_trainer.checkpoint.marker import COMPLETE, DamagedCheckpointError, Mark
from rlt_trainer.telemetry.lease import LeaseLostError

_log = logging.getLogger(__name__)

FOLDER = "checkpoints"


def prefix_of(step: int) -> str:
    """With what the keys of a checkpoint begin."""
    return f"{FOLDER}/step-{step}/"


def copy_marks(objects: Objects, checkpoints: Path) -> None:
    """Replace the markers in the folder by the markers in the bucket. Delete checkpoints without a marker there."""
    shutil.rmtree(checkpoints, ignore_errors=True)
    keys = objects.list(f"{FOLDER}/").keys()
    for key in sorted(keys):
        _, folder, *name = key.split("/")
        content = objects.read(key) if name == [COMPLETE] else None
        if content is not None:
            directory = checkpoints / folder
            directory.mkdir(parents=True)
            (directory / COMPLETE).write_bytes(content)
    marked = tuple(f"{FOLDER}/{path.name}/" for path in marker.list_marked(checkpoints))
    objects.delete([key for key in keys if key.startswith(f"{FOLDER}/step-") and not key.startswith(marked)])


def download(objects: Objects, directory: Path, *, rank: int) -> None:
    """Download a checkpoint to `directory`, its marker last. Objects of other sizes than in the marker are left out.

    Several ranks of a node share the folder. A marker that cannot be read stays alone in it.
    """
    step = marker.parse_step(directory)
    content = objects.read(prefix_of(step) + COMPLETE)
    if content is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    copy = directory / f"{COMPLETE}.{rank}"
    copy.write_bytes(content)
    copy.replace(directory / COMPLETE)
    try:
        mark = marker.read_mark(directory)
    except (DamagedCheckpointError, ValueError):
        return
    download_files(objects, prefix_of(step), mark.files, directory, first=rank)


def remove_downloads(checkpoints: Path) -> None:
    """Delete downloaded checkpoints, except their markers."""
    for path in checkpoints.glob("step-*/**/*"):
        if path.is_file() and path.name != COMPLETE:
            path.unlink(missing_ok=True)


def remove(objects: Objects, checkpoints: Path, step: int) -> None:
    """Delete a checkpoint, its marker first. Nothing happens if there is none."""
    keys = objects.list(prefix_of(step)).keys()
    objects.delete({prefix_of(step) + COMPLETE} & keys)
    shutil.rmtree(marker.checkpoint_directory(checkpoints, step), ignore_errors=True)
    objects.delete(keys)


def commit(
    objects: Objects,
    checkpoints: Path,
    step: int,
    files: Mapping[str, int],
    *,
    score: float | None = None,
    origin: str | None = None,
) -> None:
    """Mark the uploaded checkpoint as complete. Raises BucketError, and LeaseLostError if its marker exists."""
    found = objects.list(prefix_of(step))
    for name, size in files.items():
        if found.get(prefix_of(step) + name) != size:
            raise BucketError(
                f"{objects.url}/{prefix_of(step)}{name} has {found.get(prefix_of(step) + name)} bytes instead of "
                f"{size}: another program writes to this prefix.",
                "Let one job alone use it.",
            )
    number = 1 + max((mark.number for mark in marker.read_marks(checkpoints).values()), default=0)
    mark = Mark(step=step, number=number, files=dict(files), score=score, origin=origin)
    content = (json.dumps(asdict(mark)) + "\n").encode()
    if not objects.put_if_absent(prefix_of(step) + COMPLETE, content):
        raise LeaseLostError(
            f"Another execution of this run has saved step {step} in {objects.url}: this one ends, and the other one "
            "continues. If none runs, start the job again: it resumes from that checkpoint."
        )
    directory = marker.checkpoint_directory(checkpoints, step)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / COMPLETE).write_bytes(content)


def remove_superseded(objects: Objects, checkpoints: Path, config: Checkpoint) -> None:
    """Delete superseded checkpoints. The checkpoint before the first step is kept. Warns if one cannot be deleted."""
    superseded = retention.find_superseded(
        marker.read_marks(checkpoints),
        max_to_keep=config.max_to_keep,
        keep_best=config.keep_best,
        pinned=[marker.checkpoint_directory(checkpoints, 0)],
    )
    for directory in superseded:
        try:
            remove(objects, checkpoints, marker.parse_step(directory))
        except BucketError as error:
            _log.warning("An old checkpoint could not be deleted: %s", error)
