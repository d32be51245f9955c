"""Checkpoints in a bucket: the files are in checkpoints/step-N/FOLDER/, and checkpoints/step-N/complete, their marker,
is written last.

Each upload has another folder, which the marker names: a put or a delete of an earlier program that reaches the server
late does not change the files of a later one. A step that is saved again keeps its earlier checkpoint until the marker
is replaced, with the condition that it is the same one. Rank 0 has a copy of all markers in its folder of checkpoints,
and alone changes them. A checkpoint counts if its marker exists and the objects have the sizes in it.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

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


def new_folder() -> str:
    """The folder of a new upload, below the prefix of its checkpoint."""
    return f"{uuid4().hex[:8]}/"


def copy_marks(objects: Objects, checkpoints: Path) -> None:
    """Replace the markers in the folder by the markers in the bucket. Delete files that no marker names."""
    shutil.rmtree(checkpoints, ignore_errors=True)
    keys = objects.list(f"{FOLDER}/").keys()
    for key in sorted(keys):
        _, folder, *name = key.split("/")
        content = objects.read(key) if name == [COMPLETE] else None
        if content is not None:
            directory = checkpoints / folder
            directory.mkdir(parents=True)
            (directory / COMPLETE).write_bytes(content)
    marks = marker.read_marks(checkpoints)
    kept = []
    for path in marker.list_marked(checkpoints):
        folder = marks[path].folder if path in marks else ""  # all, if the marker cannot be read
        kept += [f"{FOLDER}/{path.name}/{folder}", f"{FOLDER}/{path.name}/{COMPLETE}"]
    objects.delete([key for key in keys if key.startswith(f"{FOLDER}/step-") and not key.startswith(tuple(kept))])


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
    download_files(objects, prefix_of(step) + mark.folder, mark.files, directory / mark.folder, first=rank)


def remove_downloads(checkpoints: Path) -> None:
    """Delete downloaded checkpoints, except their markers."""
    for path in checkpoints.glob("step-*/*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # other processes of the node do the same
        elif path.name != COMPLETE:
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
    folder: str,
    files: Mapping[str, int],
    check_lease: Callable[[], None],
    *,
    score: float | None = None,
    origin: str | None = None,
) -> None:
    """Mark the checkpoint that was uploaded to `folder` as complete. Delete an earlier one of this step.

    `check_lease` raises LeaseLostError. What was found before it is of this program or an earlier one. Raises
    BucketError, and LeaseLostError if the marker is changed after it.
    """
    key = prefix_of(step) + COMPLETE
    prefix = prefix_of(step) + folder
    found = objects.list(prefix_of(step))
    version = objects.find_version(key)
    check_lease()
    for name, size in files.items():
        if found.get(prefix + name) != size:
            raise BucketError(
                f"{objects.url}/{prefix}{name} has {found.get(prefix + name)} bytes instead of {size}: another program "
                "writes to this prefix.",
                "Let one job alone use it.",
            )
    number = 1 + max((mark.number for mark in marker.read_marks(checkpoints).values()), default=0)
    mark = Mark(step=step, number=number, files=dict(files), score=score, origin=origin, folder=folder)
    content = (json.dumps(asdict(mark)) + "\n").encode()
    if objects.put_if_same(key, content, version) is None and objects.read(key) != content:
        raise LeaseLostError(
            f"Another execution of this run has saved step {step} in {objects.url}: this one ends, and the other one "
            "continues. If none runs, start the job again: it resumes from that checkpoint."
        )
    directory = marker.checkpoint_directory(checkpoints, step)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / COMPLETE).write_bytes(content)
    if earlier := [each for each in found if not each.startswith((prefix, key))]:
        objects.delete(earlier)


def remove_superseded(objects: Objects, checkpoints: Path, config: Checkpoint, check_lease: Callable[[], None]) -> None:
    """Delete superseded checkpoints. The checkpoint before the first step is kept. Warns if one cannot be deleted.

    `check_lease` raises LeaseLostError if another program has started since the last marker: it may read an earlier
    checkpoint.
    """
    superseded = retention.find_superseded(
        marker.read_marks(checkpoints),
        max_to_keep=config.max_to_keep,
        keep_best=config.keep_best,
        pinned=[marker.checkpoint_directory(checkpoints, 0)],
    )
    for directory in superseded:
        try:
            check_lease()
            remove(objects, checkpoints, marker.parse_step(directory))
        except (BucketError, LeaseLostError) as error:
            _log.warning("An old checkpoint could not be deleted: %s", error)
