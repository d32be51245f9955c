"""Which checkpoint a run goes on from, and reading it. A damaged one is passed over, and said so."""

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
from rlt_trainer.checkpoint import marker
from rlt_trainer.checkpoint.contents import Shapes, differences, read_metadata, saved_shapes
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.marker import DamagedCheckpointError, Mark
from rlt_trainer.checkpoint.parts import FrozenState, ModelState, Parts, shapes
from rlt_trainer.checkpoint.retention import reading


@dataclass(frozen=True)
class Resumed:
    """What a run goes on from."""

    step: int
    directory: Path
    driver: DriverState
    """On rank 0 alone; empty on the others."""
    warnings: tuple[str, ...]
    """One for each newer checkpoint that was passed over, for people: it names both."""


def resume(checkpoints: Path, config: Checkpoint, parts: Parts) -> Resumed | None:
    """Load the checkpoint that `config` asks for into `parts`. None: there is none, the run starts anew. Collective.

    auto: the newest one in `checkpoints` that is undamaged. path: resumeFromPath, or the newest one that this run has
    written since it began there. Raises ValueError for a checkpoint of another model, an unknown format, a path without
    a whole checkpoint, and where all there are are damaged: what was learned is not thrown away unasked.
    """
    if dist.get_rank() == 0:
        marker.sweep(checkpoints)
    passed_over: list[tuple[Path, str]] = []
    for directory in _agreed(candidates(checkpoints, config)):
        try:
            step, driver = load(directory, parts)
        except DamagedCheckpointError as error:
            passed_over.append((directory, str(error)))
        else:
            told = tuple(
                f"The checkpoint {path} is damaged: {problem}; the run goes on from {directory}."
                for path, problem in passed_over
            )
            return Resumed(step, directory, driver, told)
    if passed_over:
        found = "; ".join(f"{path}: {problem}" for path, problem in passed_over)
        raise ValueError(f"No checkpoint can be gone on from ({found}). Give checkpoint.resume: never to start anew.")
    return None


def candidates(checkpoints: Path, config: Checkpoint) -> list[Path]:
    """The checkpoints to go on from, in the order in which they are tried. Raises ValueError for resumeFromPath.

    Those with a mark that cannot be read come first if they are of a later step than the newest of the others: what is
    damaged, or of another version, is not gone past in silence. Older ones stop nobody.
    """
    if config.resume == "never":
        return []
    readable = marker.readable_marks(checkpoints)
    if config.resume == "auto":
        newest = next((mark.step for mark in readable.values()), -1)
        unreadable = [path for path in marker.with_a_mark(checkpoints) if path not in readable]
        return [*(path for path in unreadable if marker.step_of(path) > newest), *readable]
    assert config.resume_from_path
    origin = Path(config.resume_from_path)
    if not (origin / marker.COMPLETE).is_file():
        raise ValueError(
            f"checkpoint.resumeFromPath {origin} is no whole checkpoint: there is no file {marker.COMPLETE} in it. "
            "Give the path of a folder step-N in a run's checkpoints, as the pods see it."
        )
    return [*(path for path, mark in readable.items() if mark.origin == str(origin)), origin]


def load(directory: Path, parts: Parts) -> tuple[int, DriverState]:
    """Load one checkpoint into `parts`. Collective. Returns its step and, on rank 0, the driver's state.

    Raises DamagedCheckpointError if any rank cannot read it, ValueError if it is not of these parts.
    """
    with opened(directory) as checkpoint:
        for name, part in parts.items():
            check_part(directory, name, part, checkpoint.saved)
        unread = {name.partition(".")[0] for name in checkpoint.saved} - set(parts)
        if unread:
            warnings.warn(f"{directory} has {', '.join(sorted(unread))}, which this run has no use for.", stacklevel=2)
        load_parts(directory, parts)
        return checkpoint.mark.step, checkpoint.driver


def load_reference(directory: Path, model: nn.Module) -> None:
    """Load what the warm-up has made, the checkpoint step-0 that `directory` goes back to, into the frozen `model`.
    Collective.

    Raises ValueError if it is not there or damaged: the reference would be another one.
    """
    start = directory
    try:
        start = start_of(directory)
        with opened(start) as checkpoint:
            names = saved_shapes(checkpoint.saved, "model")
            reference = FrozenState(model, names)
            check_part(start, "model", reference, checkpoint.saved)
            load_parts(start, {"model": reference})
    except DamagedCheckpointError as error:
        raise ValueError(
            f"{directory} cannot be gone on from: the policy after the warm-up, which the KL term compares with, is "
            f"{start}, and {error}."
        ) from error


def start_of(directory: Path) -> Path:
    """The checkpoint step-0 of the run that `directory` is of, or of the one that this began with (resumeFromPath)."""
    start, origin = marker.checkpoint_directory(directory.parent, 0), marker.read_mark(directory).origin
    return start if origin is None or start.exists() else start_of(Path(origin))


@dataclass(frozen=True)
class Opened:
    """A checkpoint that is whole, and that nobody deletes for the moment."""

    mark: Mark
    saved: dict[str, Any]
    """Name of each tensor or value -> what DCP knows of it."""
    driver: DriverState


@contextmanager
def opened(directory: Path) -> Iterator[Opened]:
    """A checkpoint that all ranks find whole. Raises DamagedCheckpointError on all of them if any does not."""
    with ExitStack() as stack:
        found, problem = None, None
        try:
            mark = marker.read_mark(directory)
            stack.enter_context(reading(directory))
            marker.verify(directory, mark)
            driver = DriverState.read(directory) if dist.get_rank() == 0 else DriverState()
            found = Opened(mark, read_metadata(directory), driver)
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
    """Raises ValueError for a part that is not saved, or a model with other names or shapes."""
    if not any(key == name or key.startswith(f"{name}.") for key in saved):
        raise ValueError(
            f"{directory} has no {name.replace('_', ' ')}: it was saved by a run without one. Give checkpoint.resume: "
            "never, or this run a directory of its own."
        )
    if isinstance(part, ModelState | FrozenState):
        check_shapes(directory, saved_shapes(saved, name), shapes(part))


def check_shapes(directory: Path, saved: Shapes, wanted: Shapes) -> None:
    """Raises ValueError if the checkpoint's model has other names or shapes."""
    found = differences(saved, wanted)
    if found:
        more = f", and {len(found) - 1} more differences" if len(found) > 1 else ""
        raise ValueError(
            f"{directory} is a checkpoint of another model: {found[0]}{more}. Give the model that it was made with, or "
            "checkpoint.resume: never to start anew."
        )


def load_parts(directory: Path, parts: Parts) -> None:
    """DCP's load, which tells all ranks of an error of any."""
    try:
        dcp_load(dict(parts), storage_reader=FileSystemReader(directory))
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise DamagedCheckpointError(f"rank {rank} could not read it ({cause!r})") from error


def _agreed(paths: list[Path]) -> list[Path]:
    """Rank 0's list on all ranks: caches of a network file system may show each another one."""
    agreed: list[Any] = [paths]
    dist.broadcast_object_list(agreed)
    return list(agreed[0])
