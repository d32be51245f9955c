"""A checkpoint in a bucket of a real S3 server on this machine: the stall of the steps, and the speed of the upload."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bench_report import Row
from torch.distributed import HashStore  # type: ignore[attr-defined]

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.training_config import RunBucket
from rlt_e2e.cluster.s3_server import s3_server
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.saver import Saver
from trainer_bench.checkpoint import measure_stall
from trainer_bench.interleaved import Times

NAME = "runs"
TENSORS = 16
TENSOR_BYTES = 16 * 2**20
ROUNDS = 6
MIN_SPEED = 0.5


def measure() -> Row:
    """Measure the stall of a save in a bucket."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as bucket:
        return measure_stall("checkpoint in a bucket", bucket=bucket.model_dump())


def measure_upload() -> Row:
    """Compare the upload of a checkpoint with a put of as many bytes by the same client, in turns."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    seconds = Times([], [])
    with tempfile.TemporaryDirectory() as name, serve(Path(name)) as bucket:
        folder = Path(name)
        objects = S3Objects(bucket)
        saver = Saver(folder / "checkpoints", Checkpoint(max_to_keep=1), objects)
        plain = folder / "plain"
        for step in range(ROUNDS + 1):
            saver.save(step, {"model": Weights()}, DriverState())  # returns when the files are on the disk
            start = time.perf_counter()
            (outcome,) = saver.collect_outcomes(wait=True)
            uploaded = time.perf_counter() - start
            assert outcome.error is None, outcome.error
            size = sum(objects.list(f"checkpoints/step-{step}/").values())
            plain.write_bytes(os.urandom(size))
            start = time.perf_counter()
            objects.put("plain", plain)
            if step > 0:
                seconds.ours.append(uploaded)
                seconds.other.append(time.perf_counter() - start)
    dist.destroy_process_group()
    speeds = [other / ours for ours, other in zip(seconds.ours, seconds.other, strict=True)]
    speed = statistics.median(speeds)
    return Row(
        "checkpoint in a bucket: speed of the upload, against a put of the same bytes by the same client",
        f"at least {MIN_SPEED} x",
        f"{speed:.2f} x, {min(speeds):.2f} to {max(speeds):.2f} x ({size / 2**20:.0f} MiB, "
        f"{statistics.median(seconds.ours):.2f} and {statistics.median(seconds.other):.2f} s)",
        speed >= MIN_SPEED,
        {"upload": seconds.ours, "plain": seconds.other},
    )


class Weights:
    """Random weights, which no file system compresses."""

    def state_dict(self) -> dict[str, Any]:
        """Return new weights."""
        return {f"layer-{number}": torch.rand(TENSOR_BYTES // 4) for number in range(TENSORS)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing is loaded."""


@contextmanager
def serve(folder: Path) -> Iterator[RunBucket]:
    """Yield a bucket of a server whose objects are in `folder`. The variables of its clients are set."""
    with s3_server(folder) as variables:
        (folder / "objects" / NAME).mkdir()
        os.environ.update(variables)
        yield RunBucket(url=f"s3://{NAME}/bench", endpoint=variables["AWS_ENDPOINT_URL_S3"])
