"""Saving of checkpoints, synchronous or in the background. A failed save does not end the run."""

from __future__ import annotations

import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.checkpoint.storage import WriteResult
from torch.torch_version import TorchVersion

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_trainer.bucket.objects import Objects
from rlt_trainer.checkpoint import marker, retention
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.parts import Parts
from rlt_trainer.checkpoint.shard_writer import ShardWriter
from rlt_trainer.checkpoint.uploads import StagedWriter, UploadError, Uploads
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import Lease

KEEPS_STAGER = TorchVersion(torch.__version__) >= "2.13"
"""Whether torch's stager can copy several times, into the same memory. The first copy closes the stager of
torch 2.11 (DefaultStager._stage in torch/distributed/checkpoint/staging.py)."""


@dataclass(frozen=True)
class SaveOutcome:
    """The outcome of a save."""

    step: int
    error: str | None = None
    """None: the checkpoint is complete. Otherwise the reason of the failure; earlier checkpoints are unchanged."""


class Saver:
    """Saves the checkpoints of a run, one at a time. Each rank has one; the constructor is collective."""

    def __init__(self, checkpoints: Path, config: Checkpoint, objects: Objects | None = None) -> None:
        """`objects`: the bucket of the run, which then has its checkpoints. `checkpoints` has copies of the markers."""
        self._checkpoints = checkpoints
        self._config = config
        self._uploads = Uploads(objects, checkpoints, config) if objects else None
        # A separate group, because saves in a background thread run concurrently with the collectives of training.
        self._group = dist.new_group(backend="gloo")
        self._pending: tuple[int, Future[Metadata] | Future[None]] | None = None
        self._stager = _open_stager()

    def save(
        self,
        step: int,
        parts: Parts,
        driver: DriverState,
        *,
        score: float | None = None,
        lease: Lease | BucketLease | None = None,
    ) -> list[SaveOutcome]:
        """Save the checkpoint of `step`. Collective. Returns the outcomes of saves since the last call.

        With a lease that is lost, the save ends the run: RuntimeError.

        With checkpoint.asynchronous it returns when the state is copied to host memory. It waits for an earlier save in
        the background first. With a bucket, the upload is always in the background.
        """
        outcomes = self.collect_outcomes(wait=True)
        writer: ShardWriter
        if self._uploads:
            writer = StagedWriter(self._uploads.staged, driver)
        else:
            writer = _Writer(self._checkpoints, step, driver, score=score, config=self._config, lease=lease)
        if self._config.asynchronous:
            if not KEEPS_STAGER:
                self._stager = _open_stager()
            pending = async_save(
                dict(parts), storage_writer=writer, process_group=self._group, async_stager=self._stager
            )
            saved = cast("Future[Metadata]", pending)
            uploaded = self._uploads and self._uploads.start(step, score=score, lease=lease, saved=saved)
            self._pending = step, uploaded or saved
            return outcomes
        try:
            dcp_save(dict(parts), storage_writer=writer, process_group=self._group)
        except CheckpointException as error:
            return [*outcomes, self._failed(step, error)]
        if self._uploads:
            self._pending = step, self._uploads.start(step, score=score, lease=lease)
            return outcomes
        return [*outcomes, SaveOutcome(step)]

    def collect_outcomes(self, *, wait: bool = False) -> list[SaveOutcome]:
        """Return the outcome of the background save, once, if it ended. wait: until it ends. Not collective."""
        if self._pending is None or not (wait or self._pending[1].done()):
            return []
        step, future = self._pending
        self._pending = None
        error = future.exception()
        if error is None:
            return [SaveOutcome(step)]
        if isinstance(error, CheckpointException):
            return [self._failed(step, error)]
        if isinstance(error, UploadError):
            reason = f"The checkpoint of step {step} was not uploaded ({error})."
            return [SaveOutcome(step, f"{reason} {self._describe_latest()}")]
        raise error

    def _failed(self, step: int, error: CheckpointException) -> SaveOutcome:
        """Return the outcome of a save that failed with an OSError. Raises RuntimeError for other causes."""
        causes = {rank: cause for rank, (cause, _) in error.failures.items() if isinstance(cause, OSError)}
        if len(causes) < len(error.failures):
            raise RuntimeError(f"The checkpoint of step {step} could not be saved: {error}") from error
        if dist.get_rank() == 0:
            shutil.rmtree(marker.partial_directory(self._checkpoints, step), ignore_errors=True)
        rank, cause = next(iter(causes.items()))
        return SaveOutcome(
            step,
            f"The checkpoint of step {step} could not be saved to {self._checkpoints} (rank {rank}: {cause}; "
            f"{describe_free_space(self._checkpoints)}). {self._describe_latest()}",
        )

    def _describe_latest(self) -> str:
        latest = marker.find_latest_step(self._checkpoints)
        found = "no checkpoint exists yet" if latest is None else f"the latest checkpoint is step-{latest}"
        return f"The training continues; {found}."


def _open_stager() -> DefaultStager:
    on_gpu = torch.cuda.is_available()
    return DefaultStager(
        StagingOptions(
            use_pinned_memory=on_gpu,
            use_shared_memory=False,
            use_async_staging=False,  # the copy must be complete before the next optimizer step
            use_non_blocking_copy=on_gpu,
        )
    )


class _Writer(ShardWriter):
    """Writes the shards. On the coordinator it also creates the folder before, and commits it after all ranks wrote.

    DCP raises an error in any of these steps on all ranks.
    """

    def __init__(
        self,
        checkpoints: Path,
        step: int,
        driver: DriverState,
        *,
        score: float | None,
        config: Checkpoint,
        lease: Lease | BucketLease | None,
    ) -> None:
        super().__init__(marker.partial_directory(checkpoints, step))
        self._checkpoints = checkpoints
        self._step = step
        self._driver = driver
        self._score = score
        self._config = config
        self._lease = lease

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan  # prepare_global_plan creates the folder

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._check_lease()
        self._driver.write(marker.prepare(self._checkpoints, self._step))
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        return prepared

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        self._check_lease()
        origin = self._config.resume_from_path if self._config.resume == "path" else None
        marker.commit(self._checkpoints, self._step, score=self._score, origin=origin)
        # Step 0 is the policy after the warm-up, from which the reference is loaded.
        pinned = [marker.checkpoint_directory(self._checkpoints, 0), *([Path(origin)] if origin else [])]
        retention.remove_superseded(
            self._checkpoints,
            max_to_keep=self._config.max_to_keep,
            keep_best=self._config.keep_best,
            pinned=pinned,
        )

    def _check_lease(self) -> None:
        if self._lease:
            self._lease.check()


def describe_free_space(path: Path) -> str:
    """Describe the free disk space for a message. `path` or one of its parents must exist."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return f"{shutil.disk_usage(existing).free / 2**20:.1f} MiB free"
