"""The checks of buckets: the run's, and those with models and data. Pure functions of the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_pod.preflight.result import Result, fail_if, failed, format_pods, format_reasons, passed, warned

if TYPE_CHECKING:
    from rlt_pod.preflight.expected import Expected
    from rlt_pod.preflight.measure import Data

MAX_SKEW_S = 60
"""S3 rejects requests whose time differs by more than 15 minutes (RequestTimeTooSkewed)."""


def bucket_can_be_used(expected: Expected, measured: Data) -> Result | None:
    """The head and each pod that trains can use the bucket, and their clocks are the server's."""
    if expected.bucket is None:
        return None
    broken = {each.pod: each for each in measured.buckets if each.problem is not None}
    if broken:
        first = broken[min(broken)]
        reasons = format_reasons({pod: each.problem or "" for pod, each in broken.items()})
        return failed("bucket", expected.bucket.url, f"{reasons}.", first.fix, broken)
    skews = {each.pod: each.skew for each in measured.buckets if each.skew is not None}
    limit = f"{MAX_SKEW_S} s"
    worst = max(skews.values(), key=abs, default=0.0)
    value = f"{worst:+.0f} s"
    late = {pod for pod, skew in skews.items() if abs(skew) > MAX_SKEW_S}
    if late:
        message = f"The clock of {format_pods(late)} differs from the server's: at 15 minutes it rejects requests."
        remedy = "Synchronize the clock of the nodes, or of the server spec.storage.endpoint (NTP)."
        return warned("bucket", value, message, remedy, late, threshold=limit)
    message = "The head and the pods that train can list, write, put if absent, read and delete objects."
    speeds = [(each.speed, each.pod) for each in measured.buckets if each.speed is not None]
    if speeds:
        slowest, pod = min(speeds)
        message += f" The slowest upload, of {pod}, had {slowest:.3g} MB/s."
    return passed("bucket", value, message, threshold=limit)


def objects_can_be_read(expected: Expected, measured: Data) -> Result | None:
    """The head can list models and data in a bucket, and each model has a config.json."""
    if not expected.objects:
        return None
    value = f"{len(expected.objects)} path{'s' * (len(expected.objects) != 1)}"
    problems = measured.object_problems
    if not problems:
        return passed("objects", value, f"The bucket has {', '.join(each.url for each in expected.objects)}.")
    certain = [each for each in problems if each.is_certain]
    reported = certain or problems
    message = " ".join(each.problem for each in reported)
    return fail_if(bool(certain), "objects", value, message, reported[0].fix)


CHECKS = ((bucket_can_be_used, "bucket"), (objects_can_be_read, "objects"))
"""Each check, and the measurement that it is based on."""
