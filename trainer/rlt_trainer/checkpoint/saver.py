"""Saving, at once or while the training goes on. A full disk costs a checkpoint, never the run."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.checkpoint.storage import WriteResult

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.checkpoint import marker, retention
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.parts import Parts

Written = torch.futures.Future[list[WriteResult]]


@dataclass(frozen=True)
class SaveOutcome:
    """How a save ended."""

    step: int
    problem: str | None = None
    """None: the checkpoint is whole. Else a sentence that says why there is none; the earlier ones are untouched."""


class Saver:
    """Saves a run's checkpoints, one at a time. One on each rank; made by all of them together."""

    def __init__(self, checkpoints: Path, config: Checkpoint) -> None:
        self._checkpoints = checkpoints
        self._config = config
        # A group of its own: what is said here, perhaps in a thread, must not mix with what the training says.
        self._group = dist.new_group(backend="gloo")
        self._pending: tuple[int, Future[Metadata]] | None = None
        on_gpu = torch.cuda.is_available()
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu,
                use_shared_memory=False,
                use_async_staging=False,  # the next optimizer step changes the weights: the copy has to be there
                use_non_blocking_copy=on_gpu,
            )
        )

    def save(self, step: int, parts: Parts, driver: DriverState, *, score: float | None = None) -> list[SaveOutcome]:
        """Save the checkpoint of `step`. Collective. Returns the saves that have ended since the last call.

        With checkpoint.asynchronous it returns as soon as the state is copied to the host's memory; it waits for the
        save before, if that is not over.
        """
        outcomes = self.finished(wait=True)
        writer = _Writer(self._checkpoints, step, driver, score=score, config=self._config)
        if self._config.asynchronous:
            pending = async_save(
                dict(parts), storage_writer=writer, process_group=self._group, async_stager=self._stager
            )
            self._pending = step, cast("Future[Metadata]", pending)
            return outcomes
        try:
            dcp_save(dict(parts), storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            return [*outcomes, self._failed(step, error)]
        return [*outcomes, SaveOutcome(step)]

    def finished(self, *, wait: bool = False) -> list[SaveOutcome]:
        """The outcome of the save in the background, once, when it is over; `wait` for that. Not collective."""
        if self._pending is None or not (wait or self._pending[1].done()):
            return []
        (step, future), self._pending = self._pending, None
        error = future.exception()
        if error is None:
            return [SaveOutcome(step)]
        if isinstance(error, CheckpointException):
            return [self._failed(step, error)]
        raise error

    def _failed(self, step: int, error: CheckpointException) -> SaveOutcome:
        """The outcome of a save that the storage did not take. Raises `error` if something else is at fault."""
        causes = {rank: cause for rank, (cause, _) in error.failures.items() if isinstance(cause, OSError)}
        if len(causes) < len(error.failures):
            raise RuntimeError(f"The checkpoint of step {step} could not be saved: {error}") from error
        if dist.get_rank() == 0:
            shutil.rmtree(marker.partial_directory(self._checkpoints, step), ignore_errors=True)
        rank, cause = next(iter(causes.items()))
        latest = marker.latest_complete(self._checkpoints)
        return SaveOutcome(
            step,
            f"The checkpoint of step {step} could not be saved to {self._checkpoints} (rank {rank}: {cause}; "
            f"{free_space(self._checkpoints)}). The training goes on; "
            + ("there is no checkpoint yet." if latest is None else f"the newest checkpoint is step-{latest}."),
        )


class _Writer(FileSystemWriter):
    """Writes the shards and, on the coordinator, prepares the folder before them and commits it after all of them.

    DCP tells all ranks of an error in any of these, so that they always agree.
    """

    def __init__(
        self, checkpoints: Path, step: int, driver: DriverState, *, score: float | None, config: Checkpoint
    ) -> None:
        super().__init__(marker.partial_directory(checkpoints, step))
        self._checkpoints = checkpoints
        self._step = step
        self._driver = driver
        self._score = score
        self._config = config

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan  # the folder is made below

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._driver.write(marker.prepare(self._checkpoints, self._step))
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        return prepared

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Written:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:  # torch.save's own about its archive, raised while it handles an OSError
            raise error.__context__ if isinstance(error.__context__, OSError) else error  # noqa: B904

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        origin = self._config.resume_from_path if self._config.resume == "path" else None
        marker.commit(self._checkpoints, self._step, score=self._score, origin=origin)
        # Step 0 is what a warm-up has made: the reference is loaded from there.
        pinned = [marker.checkpoint_directory(self._checkpoints, 0), *([Path(origin)] if origin else [])]
        retention.remove_superseded(
            self._checkpoints,
            max_to_keep=self._config.max_to_keep,
            keep_best=self._config.keep_best,
            pinned=pinned,
        )


def free_space(path: Path) -> str:
    """How much room there is, for people. `path` exists, or a folder above it."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return f"{shutil.disk_usage(existing).free / 2**20:.1f} MiB are free there"
