"""The lease of a run in a bucket: of several programs that write there, the one that has started last may.

The object executions/N has the attempt and the Ray job of the program that has started as the N-th. It is put with the
condition that it does not exist, and is never deleted: each program has another number. A program lists these objects
before the first upload of a checkpoint, before its marker, and before it replaces results: with a higher number than
its own, the lease is lost. The put that follows is not atomic with the list. A marker of this moment is of a complete
checkpoint, whose number is not higher than the number of the later program's first checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.spec.training_config import RunBucket
from rlt_trainer.bucket.objects import Objects
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.telemetry.lease import FOLDER, LeaseLostError


@dataclass(frozen=True)
class BucketLease:
    """The right of one program to write to the bucket of a run. The workers get a copy of the driver's."""

    bucket: RunBucket
    number: int
    """The name of its object in executions/."""

    @classmethod
    def take(cls, bucket: RunBucket, attempt: int, holder: str) -> BucketLease:
        """Take the lease for the Ray job `holder`. Raises LeaseLostError if a later attempt has it, and BucketError."""
        objects = S3Objects(bucket)
        while True:
            latest = _find_latest(objects)
            found = (objects.read(f"{FOLDER}/{latest}") or b"0").decode()
            if int(found.split()[0]) > attempt:
                raise _lost(bucket, f"attempt {attempt}", f"attempt {found}")
            if objects.put_if_absent(f"{FOLDER}/{latest + 1}", f"{attempt} {holder}\n".encode()):
                return cls(bucket, latest + 1)

    def check(self) -> None:
        """Raise LeaseLostError if a later program has started. Raises BucketError if that is unknown."""
        latest = _find_latest(S3Objects(self.bucket))
        if latest != self.number:
            raise _lost(self.bucket, f"execution {self.number}", f"execution {latest}")


def _find_latest(objects: Objects) -> int:
    names = (key.rpartition("/")[2] for key in objects.list(f"{FOLDER}/"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _lost(bucket: RunBucket, own: str, found: str) -> LeaseLostError:
    return LeaseLostError(
        f"The program ({own}) has lost the lease of {bucket.url} ({' '.join(found.split())}): a program that has "
        "started later writes there. Nothing is to be done: the later one continues."
    )
