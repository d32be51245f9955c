"""Ranks that save and load checkpoints in a bucket. Each has its own run directory, as on its own node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import join
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.training_config import RunBucket
from rlt_trainer.bucket.objects import Objects
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.resume import resume
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.telemetry.bucket_lease import BucketLease

ROWS = 240
"""Divisible by one, two and three ranks."""


def build_weights(step: int, seed: int = 0) -> Tensor:
    """The weights after a step. With another seed, they have other values and the same size."""
    return torch.randn(ROWS, 64, generator=torch.Generator().manual_seed(1000 * seed + step))


class Weights:
    """The weights of a step, sharded by rows."""

    def __init__(self, step: int, rank: int, ranks: int, seed: int = 0) -> None:
        mesh = init_device_mesh("cpu", (ranks,))
        self.value = DTensor.from_local(build_weights(step, seed).chunk(ranks)[rank].clone(), mesh, [Shard(0)])

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["weight"]


@dataclass(frozen=True)
class Place:
    """The bucket of a run, and the variables of its clients."""

    url: str
    endpoint: str
    variables: Mapping[str, str]
    lease: BucketLease | None = None
    seed: int = 0
    """Of the weights that are saved."""


def open_rank(place: Place, folder: Path, rank: int, ranks: int) -> tuple[Objects, Path]:
    """Join the ranks, and leave the ID of this process. Return the bucket and the folder of this rank's checkpoints."""
    torch.set_num_threads(1)
    os.environ.update(place.variables)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    join(rank, ranks)
    objects = S3Objects(RunBucket(url=place.url, endpoint=place.endpoint))
    return objects, folder / f"node-{rank}/checkpoints"


def save_steps(
    place: Place, folder: Path, steps: range, asynchronous: bool, rank: int, ranks: int
) -> list[tuple[int, str | None]]:
    """Resume, save the steps, and return their outcomes."""
    objects, checkpoints = open_rank(place, folder, rank, ranks)
    config = Checkpoint(asynchronous=asynchronous, max_to_keep=2)
    saver = Saver(checkpoints, config, objects)
    resume(checkpoints, config, {"model": Weights(0, rank, ranks)}, objects)
    outcomes = []
    for step in steps:
        parts = {"model": Weights(step, rank, ranks, place.seed)}
        outcomes += saver.save(step, parts, DriverState({"step": step}), lease=place.lease)
    outcomes += saver.collect_outcomes(wait=True)
    dist.destroy_process_group()
    return [(outcome.step, outcome.error) for outcome in outcomes]


def load_latest(
    place: Place, folder: Path, rank: int, ranks: int, config: Checkpoint | None = None
) -> tuple[int, bool]:
    """Resume. Return the step, and whether the weights are its, bit for bit."""
    objects, checkpoints = open_rank(place, folder, rank, ranks)
    weights = Weights(-1, rank, ranks)
    resumed = resume(checkpoints, config or Checkpoint(), {"model": weights}, objects)
    assert resumed
    assert rank > 0 or resumed.driver.values == {"step": resumed.step}
    is_equal = torch.equal(weights.value.full_tensor(), build_weights(resumed.step))
    dist.destroy_process_group()
    return resumed.step, is_equal
