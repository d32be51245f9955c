"""The run directory and the bucket of a run, with the lease that an attempt takes."""

from __future__ import annotations

from pathlib import Path

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.bucket.check import abort_leftovers, check_bucket
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.extras import validate_extras
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import Lease
from rlt_trainer.telemetry.published_results import PublishedResults
from rlt_trainer.telemetry.run_directory import RunDirectory

UNNUMBERED = (0, "a program without an attempt")
"""Attempt and holder of the lease in a bucket, where each program needs a number."""


def open_results(config: TrainingConfig, execution: tuple[int, str] | None) -> PublishedResults | None:
    """Open the bucket of the run, and get the results that the run continues. None: the run has a volume.

    Raises BucketError if the bucket does not have what a run needs, and LeaseLostError.
    """
    if config.bucket is None:
        return None
    validate_extras(config)
    objects = S3Objects(config.bucket)
    check_bucket(objects)
    lease = BucketLease.take(config.bucket, *(execution or UNNUMBERED))
    abort_leftovers(objects)
    results = PublishedResults(objects, Path(config.run_directory), lease)
    results.restore()
    return results


def open_run_directory(path: Path, execution: tuple[int, str] | None, results: PublishedResults | None) -> RunDirectory:
    """Take the lease before anything is written. Raises ValueError if the directory cannot be written."""
    if results:
        return RunDirectory(path, results.lease)
    if execution is None:
        return RunDirectory(path)
    try:
        lease = Lease.take(path, *execution)
    except OSError as error:
        raise ValueError(f"The run directory {path} cannot be written: {error.strerror or error}.") from error
    return RunDirectory(path, lease)
