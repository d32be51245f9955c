"""Selection and loading of the checkpoint to resume from. Damaged checkpoints are skipped with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.bucket.objects import Objects
from rlt_trainer.checkpoint import bucket_marks, marker
from rlt_trainer.checkpoint.contents import Shapes, describe_differences, read_metadata, select_shapes
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.marker import DamagedCheckpointError, Mark
from rlt_trainer.checkpoint.parts import FrozenState, ModelState, OptimizerState, Parts, list_shapes
from rlt_trainer.checkpoint.retention import lock_for_reading
from rlt_trainer.policy.mesh import wait_for_ranks


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that a run resumed from."""

    step: int
    directory: Path
    driver: DriverState
    """Only on rank 0; empty on the other ranks."""
    warnings: tuple[str, ...]
    """One for each newer checkpoint that was skipped, with the skipped and the loaded one, and one for a reference that
    differs from the reference of the run before."""


def resume(checkpoints: Path, config: Checkpoint, parts: Parts, objects: Objects | None = None) -> Resumed | None:
    """Load the checkpoint that `config` selects into `parts`. Returns None if there is no checkpoint. Collective.

    auto: the latest undamaged checkpoint in `checkpoints`. path: resumeFromPath, or the latest checkpoint that this run
    saved after it started there. Raises ValueError for a checkpoint of a different model, an unknown format, a path
    without a complete checkpoint, and if all checkpoints are damaged, so that no progress is discarded silently.

    With `objects`, the checkpoints are in the bucket, and the nodes download the selected one to `checkpoints`.
    """
    rank = dist.get_rank()
    if objects:
        bucket_marks.remove_downloads(checkpoints)
        wait_for_ranks()  # no rank of this node has begun to download
    if rank == 0 and objects:
        bucket_marks.copy_marks(objects, checkpoints)
    if rank == 0:
        marker.remove_partial(checkpoints)
    skipped: list[tuple[Path, str]] = []
    found = list_candidates(checkpoints, config)
    candidates = [path.relative_to(checkpoints) if path.parent == checkpoints else path for path in found]
    for candidate in _broadcast(candidates):
        directory = checkpoints / candidate
        if objects and directory.parent == checkpoints:
            bucket_marks.download(objects, directory, rank=rank)
        try:
            step, driver = load_checkpoint(directory, parts)
        except DamagedCheckpointError as error:
            skipped.append((directory, str(error)))
        else:
            skip_warnings = tuple(
                f"The checkpoint {path} is damaged: {problem}; the run resumes from {directory}."
                for path, problem in skipped
            )
            return Resumed(step, directory, driver, skip_warnings)
    if skipped:
        problems = "; ".join(f"{path}: {problem}" for path, problem in skipped)
        raise ValueError(
            f"No usable checkpoint ({problems}). Set checkpoint.resume: never to start from the beginning."
        )
    return None


def list_candidates(checkpoints: Path, config: Checkpoint) -> list[Path]:
    """List the checkpoints to resume from, in the order to try. Raises ValueError for an invalid resumeFromPath.

    A checkpoint with an unreadable marker comes first if its step is later than the latest readable one's, so
    that damage or another format version is not ignored silently. Older unreadable ones are ignored.
    """
    if config.resume == "never":
        return []
    readable = marker.read_marks(checkpoints)
    if config.resume == "auto":
        newest = next((mark.step for mark in readable.values()), -1)
        unreadable = [path for path in marker.list_marked(checkpoints) if path not in readable]
        return [*(path for path in unreadable if marker.parse_step(path) > newest), *readable]
    assert config.resume_from_path
    origin = Path(config.resume_from_path)
    if not (origin / marker.COMPLETE).is_file():
        raise ValueError(
            f"checkpoint.resumeFromPath: {origin} is not a complete checkpoint, its file {marker.COMPLETE} is missing. "
            "Use the path, in the pods, of a folder step-N in a run's checkpoints."
        )
    return [*(path for path, mark in readable.items() if mark.origin == str(origin)), origin]


def load_checkpoint(directory: Path, parts: Parts) -> tuple[int, DriverState]:
    """Load one checkpoint into `parts`. Returns its step and, on rank 0, the driver's state. Collective.

    Raises DamagedCheckpointError if any rank cannot read it, ValueError if its parts differ.
    """
    with open_checkpoint(directory) as checkpoint:
        for name, part in parts.items():
            check_part(directory, name, part, checkpoint.saved)
        unused = {name.partition(".")[0] for name in checkpoint.saved} - set(parts)
        if unused:
            warnings.warn(
                f"{directory} contains {', '.join(sorted(unused))}, which this run does not use.", stacklevel=2
            )
        load_parts(checkpoint.files, parts)
        return checkpoint.mark.step, checkpoint.driver


def load_reference(directory: Path, model: nn.Module) -> None:
    """Load the policy after the warm-up, checkpoint step-0 of `directory`'s run, into the frozen `model`. Collective.

    Raises ValueError if it is missing or damaged, because the reference would differ.
    """
    start = directory
    try:
        start = find_warmup_checkpoint(directory)
        with open_checkpoint(start) as checkpoint:
            names = select_shapes(checkpoint.saved, "model")
            reference = FrozenState(model, names)
            check_part(start, "model", reference, checkpoint.saved)
            load_parts(checkpoint.files, {"model": reference})
    except DamagedCheckpointError as error:
        raise ValueError(
            f"Cannot resume from {directory}: the reference of the KL term, the policy after the warm-up in {start}, "
            f"is damaged: {error}. Restore it, or set checkpoint.resume: never."
        ) from error


def describe_other_reference(directory: Path) -> str | None:
    """Return a warning if a run without a warm-up resumes from a checkpoint of a run that had one, and still exists."""
    try:
        start = find_warmup_checkpoint(directory)
    except (DamagedCheckpointError, ValueError):
        return None
    if not start.exists():
        return None
    return (
        "training.warmup is not set: the reference of the KL term is the model before the warm-up. For the policy "
        f"after it, as in {start}, set training.warmup as in that run."
    )


def find_warmup_checkpoint(directory: Path) -> Path:
    """Return the checkpoint step-0 of `directory`'s run, or of the run that it started from (resumeFromPath)."""
    start = marker.checkpoint_directory(directory.parent, 0)
    origin = marker.read_mark(directory).origin
    return start if origin is None or start.exists() else find_warmup_checkpoint(Path(origin))


@dataclass(frozen=True)
class OpenCheckpoint:
    """A complete checkpoint, locked against deletion."""

    mark: Mark
    files: Path
    """The folder with the files."""
    saved: dict[str, Any]
    """DCP's metadata by name of the tensor or value."""
    driver: DriverState


@contextmanager
def open_checkpoint(directory: Path) -> Iterator[OpenCheckpoint]:
    """Open and verify a checkpoint. Collective: raises DamagedCheckpointError on all ranks if any rank fails."""
    with ExitStack() as stack:
        found = None
        problem = None
        try:
            mark = marker.read_mark(directory)
            stack.enter_context(lock_for_reading(directory))
            marker.verify(directory, mark)
            files = directory / mark.folder
            driver = DriverState.read(files) if dist.get_rank() == 0 else DriverState()
            found = OpenCheckpoint(mark, files, read_metadata(files), driver)
        except DamagedCheckpointError as error:
            problem = str(error)
        problems: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        for rank, each in enumerate(problems):
            if each is not None:
                raise DamagedCheckpointError(f"{each} (rank {rank})")
        assert found is not None
        yield found


def check_part(directory: Path, name: str, part: object, saved: dict[str, Any]) -> None:
    """Raise ValueError if a part is not saved, if names or shapes of a model differ, or with another optimizer."""
    if not any(key == name or key.startswith(f"{name}.") for key in saved):
        raise ValueError(
            f"{directory} has no {name.replace('_', ' ')}: it was saved by a run without one. Set checkpoint.resume: "
            "never, or use another run directory."
        )
    if isinstance(part, ModelState | FrozenState):
        check_shapes(directory, select_shapes(saved, name), list_shapes(part))
    if isinstance(part, OptimizerState) and (missing := sorted(part.list_names(name) - saved.keys())):
        raise ValueError(
            f"{directory} was saved with another training.optimizer: it has no {missing[0]}. Use the optimizer that it "
            "was saved with, or model.path with the exported model."
        )


def check_shapes(directory: Path, saved: Shapes, wanted: Shapes) -> None:
    """Raise ValueError if names or shapes of the checkpoint's model differ."""
    found = describe_differences(saved, wanted)
    if found:
        more = f", and {len(found) - 1} more differences" if len(found) > 1 else ""
        raise ValueError(
            f"{directory} is a checkpoint of another model: {found[0]}{more}. Use the model that it was saved with, or "
            "set checkpoint.resume: never to start from the beginning."
        )


def load_parts(directory: Path, parts: Parts) -> None:
    """Load `parts` with DCP, which raises an error of any rank on all ranks."""
    try:
        dcp_load(dict(parts), storage_reader=FileSystemReader(directory))
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise DamagedCheckpointError(f"rank {rank} could not read it ({cause!r})") from error


def _broadcast(paths: list[Path]) -> list[Path]:
    """Return rank 0's list on all ranks: with a network file system's caches, ranks may list different folders."""
    broadcast: list[Any] = [paths]
    dist.broadcast_object_list(broadcast)
    return list(broadcast[0])
