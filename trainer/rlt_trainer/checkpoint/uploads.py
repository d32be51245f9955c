"""The upload of checkpoints beside the training: every rank uploads what it wrote to its node's disk.

DCP's own writer for object storage would commit an object whose write was interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.bucket.folders import upload_folder
from rlt_trainer.bucket.objects import BucketError, Objects
from rlt_trainer.checkpoint import bucket_marks
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.shard_writer import ShardWriter
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import Lease, LeaseLostError

T = TypeVar("T")
TIMEOUT = timedelta(days=1)
"""For the other ranks to end their uploads. The upload itself fails after the retries of the client."""


class UploadError(Exception):
    """A checkpoint was not uploaded. Earlier ones are unchanged."""


@dataclass(frozen=True)
class _Failure:
    reason: str
    is_lease_lost: bool


class Uploads:
    """Uploads the checkpoints of a run, one at a time. Each rank has one; the constructor is collective."""

    def __init__(self, objects: Objects, checkpoints: Path, config: Checkpoint) -> None:
        self._objects = objects
        self._checkpoints = checkpoints
        self._config = config
        self._rank = dist.get_rank()
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upload")
        self.staged = checkpoints.with_name("staged") / f"rank-{self._rank}"
        """The folder of this rank's part of a checkpoint, until it is uploaded."""

    def start(
        self,
        step: int,
        *,
        score: float | None,
        lease: Lease | BucketLease | None,
        saved: Future[Metadata] | None = None,
    ) -> Future[None]:
        """Start to upload the staged checkpoint of `step`, after it is `saved`. Collective in the background.

        The future raises UploadError, LeaseLostError, or the error of `saved`, on all ranks.
        """
        return self._thread.submit(self._upload, step, score, lease, saved)

    def _upload(
        self, step: int, score: float | None, lease: Lease | BucketLease | None, saved: Future[Metadata] | None
    ) -> None:
        objects = self._objects
        checkpoints = self._checkpoints
        check_lease = lease.check if lease else _hold_no_lease
        try:
            if saved is not None:
                saved.result()
            (folder, *_) = self._together(partial(_begin, check_lease), first_rank_only=True)
            assert folder
            prefix = bucket_marks.prefix_of(step) + folder
            parts = self._together(partial(upload_folder, objects, self.staged, prefix))
            files = {name: size for part in parts if part for name, size in part.items()}
            commit = partial(self._commit, step, folder, files, score, check_lease)
            self._together(commit, first_rank_only=True)
        finally:
            shutil.rmtree(self.staged, ignore_errors=True)
        if self._rank == 0:
            bucket_marks.remove_superseded(objects, checkpoints, self._config, check_lease)

    def _commit(
        self, step: int, folder: str, files: Mapping[str, int], score: float | None, check_lease: Callable[[], None]
    ) -> None:
        origin = self._config.resume_from_path if self._config.resume == "path" else None
        bucket_marks.commit(
            self._objects, self._checkpoints, step, folder, files, check_lease, score=score, origin=origin
        )

    def _together(self, action: Callable[[], T], *, first_rank_only: bool = False) -> list[T | None]:
        """Call `action`, and return the results of all ranks. An error of one rank is raised on all."""
        mine: T | _Failure | None = None
        try:
            if self._rank == 0 or not first_rank_only:
                mine = action()
        except (BucketError, LeaseLostError, OSError) as error:
            mine = _Failure(str(error), isinstance(error, LeaseLostError))
        results: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(results, mine, group=self._group)
        for rank, each in enumerate(results):
            if isinstance(each, _Failure):
                raise LeaseLostError(each.reason) if each.is_lease_lost else UploadError(f"rank {rank}: {each.reason}")
        return results


def _begin(check_lease: Callable[[], None]) -> str:
    """Return the folder of a new checkpoint."""
    check_lease()
    return bucket_marks.new_folder()


def _hold_no_lease() -> None:
    """One program alone writes to the bucket, such as a trial."""


class StagedWriter(ShardWriter):
    """Writes a rank's shards to its own folder. Rank 0 adds the driver's state and DCP's metadata."""

    def __init__(self, folder: Path, driver: DriverState) -> None:
        super().__init__(folder)
        self._folder = folder
        self._driver = driver

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._driver.write(self._folder)
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        return prepared
