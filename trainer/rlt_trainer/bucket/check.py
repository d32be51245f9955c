"""Whether a bucket has what a run needs, before the models are loaded."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from rlt_trainer.bucket.objects import BucketError, Objects

_log = logging.getLogger(__name__)

SPEED_BYTES = 8 * 2**20


def check_bucket(objects: Objects) -> None:
    """List, write, write conditionally, read and delete an object. Raises BucketError with the first that fails."""
    key = f".check-{uuid4().hex}"
    objects.list("checkpoints/")
    objects.put_if_absent(key, b"first")
    try:
        is_replaced = objects.put_if_absent(key, b"second") or objects.put_if_same(key, b"third", '"another"')
        if is_replaced or objects.read(key) != b"first":
            raise BucketError(
                f"The server of {objects.url} ignores the condition of a put (If-None-Match, If-Match), by which a "
                "checkpoint counts only when it is complete, and a late request replaces no result.",
                "Set spec.storage.endpoint to a server that has conditional puts, such as S3, MinIO or Ceph.",
            )
    finally:
        objects.delete([key])


def measure_speed(objects: Objects) -> float:
    """Upload an object of SPEED_BYTES, delete it, and return the MB/s of the upload. Raises BucketError."""
    key = f".check-{uuid4().hex}"
    with TemporaryDirectory() as folder:
        file = Path(folder, "random")
        file.write_bytes(os.urandom(SPEED_BYTES))
        start = time.perf_counter()
        try:
            objects.put(key, file)
            return SPEED_BYTES / 1e6 / (time.perf_counter() - start)
        finally:
            objects.delete([key])


def abort_leftovers(objects: Objects) -> None:
    """Abort the uploads that a killed program of this run left. Warns if that is not allowed."""
    try:
        objects.abort_uploads()
    except BucketError as error:
        _log.warning("Unfinished uploads of earlier attempts were not aborted, and use space: %s", error)
