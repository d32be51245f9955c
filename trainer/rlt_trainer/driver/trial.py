"""`rlt-trainer trial`: one step of a job's own configuration, and its checkpoint read back, before the training."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlt_api.blocks.operations import Observability
from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.step_history import METRICS_FILE
from rlt_trainer.bucket.objects import BucketError, Objects
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.checkpoint.marker import COMPLETE
from rlt_trainer.driver.run import run
from rlt_trainer.extras import validate_extras
from rlt_trainer.telemetry.run_directory import RunDirectory, get_rollouts_file

GIB = 2**30
MEMORY = "perf/max_memory_reserved_gb"
"""Maximum over the ranks of the memory that torch's allocator reserved, in GiB. Missing on CPUs."""


def run_trial(config: TrainingConfig, *, local: bool = False) -> dict[str, Any]:
    """Run one step, and resume from its checkpoint, in a folder of the run directory that is removed afterwards.

    Return the report that rlt_pod/preflight/trial/trainer_trial.py checks. Raises the errors of `run`, and ValueError
    if the second start did not find the checkpoint.
    """
    validate_extras(config)
    folder = Path(config.run_directory) / f".preflight-{uuid4().hex[:8]}"
    trial = build_trial_config(config, folder)
    objects = S3Objects(trial.bucket) if trial.bucket else None
    try:
        run(trial, local=local, port=0)
        metrics = _read_step(folder)
        directory = RunDirectory(folder).checkpoints / "step-1"
        saved = _measure_checkpoint(directory, objects)
        if saved is None:
            raise ValueError(f"The checkpoint {directory} was not saved: see the log above.")
        started = time.time()
        run(trial, local=local, port=0)
        if _read_step(folder) != metrics:
            raise ValueError(f"The checkpoint {directory} was not loaded: the step was repeated.")
        return {
            "seconds": metrics["timing_s/step"],
            "resumeSeconds": time.time() - started,
            "checkpointBytes": saved,
            **_read_response(get_rollouts_file(folder, 1)),
            **({"peakMemory": int(metrics[MEMORY] * GIB)} if MEMORY in metrics else {}),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if objects:
            with suppress(BucketError):  # the run has its own error of the bucket
                objects.delete(objects.list(""))


def build_trial_config(config: TrainingConfig, folder: Path) -> TrainingConfig:
    """Build the config of one step with a checkpoint, without evaluation, supervised steps and trackers."""
    training = {"total_steps": 1, "total_epochs": None, "warmup": None}
    bucket = config.bucket
    checkpoint = {"save_freq": 1, "resume": "auto", "resume_from_path": None, "keep_best": False}
    return config.model_copy(
        update={
            "run_directory": str(folder),
            "bucket": bucket and bucket.model_copy(update={"url": f"{bucket.url}/{folder.name}"}),
            "training": config.training.model_copy(update=training),
            "evaluation": [],
            "checkpoint": config.checkpoint.model_copy(update=checkpoint),
            "observability": Observability(),
        }
    )


def _measure_checkpoint(directory: Path, objects: Objects | None) -> int | None:
    """Return the bytes of the checkpoint on the volume or in the bucket. None: it is not complete."""
    if objects:
        sizes = objects.list(f"checkpoints/{directory.name}/")
    else:
        files = (file for file in directory.rglob("*") if file.is_file())
        sizes = {file.name: file.stat().st_size for file in files}
    return sum(sizes.values()) if any(name.rpartition("/")[2] == COMPLETE for name in sizes) else None


def _read_response(rollouts: Path) -> dict[str, str]:
    """Read the first response. Empty if the job generates none (algorithm.dpo)."""
    if not rollouts.exists():
        return {}
    with rollouts.open(encoding="utf-8") as file:
        return {"text": json.loads(next(file))["response"]}


def _read_step(folder: Path) -> dict[str, Any]:
    """Read the only line of the metrics."""
    lines = (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    metrics: dict[str, Any] = json.loads(lines[-1])
    return metrics
