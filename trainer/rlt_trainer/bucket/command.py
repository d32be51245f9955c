"""`rlt-trainer bucket`: whether this pod can use the bucket of a run. The preflight checks call it in each pod."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rlt_api.spec.training_config import RunBucket
from rlt_trainer.bucket.check import check_bucket, measure_speed
from rlt_trainer.bucket.objects import BucketError
from rlt_trainer.bucket.s3 import S3Objects, get_server
from rlt_trainer.extras import explain_missing

MAX_RETRIES = 2
TIMEOUT_S = 10


def main(arguments: Sequence[str]) -> int:
    """Print the result in JSON: problem and fix, or null and "", the clock's skew, and the speed of an upload.

    The skew is in seconds, the speed in MB/s. They are null if unknown.

    The exit code is 1 with a problem.
    """
    parser = argparse.ArgumentParser(prog="rlt-trainer bucket", description="Verify that a run can use its bucket.")
    parser.add_argument("--url", required=True, help="URL of the run's objects: s3://BUCKET/PREFIX")
    parser.add_argument("--endpoint", help="URL of the server. Default: Amazon's S3")
    options = parser.parse_args(arguments)
    bucket = RunBucket(url=options.url, endpoint=options.endpoint)
    skew = measure_skew(get_server(bucket))
    problem = None
    fix = ""
    speed = None
    if missing := explain_missing("bucket", "storage.bucket"):
        problem, _, fix = missing.partition(": ")
    else:
        try:
            objects = S3Objects(bucket, max_retries=MAX_RETRIES)
            check_bucket(objects)
            speed = measure_speed(objects)
        except BucketError as error:
            problem = error.problem.rstrip(".")
            fix = error.fix
    print(json.dumps({"problem": problem, "fix": fix, "skew": skew, "speed": speed}))
    return int(problem is not None)


def measure_skew(server: str) -> float | None:
    """Return the seconds by which this clock is ahead of the server's, which is rounded down to seconds.

    None: the server does not answer, or without the time.
    """
    before = time.time()
    try:
        with urlopen(Request(server, method="HEAD"), timeout=TIMEOUT_S) as answer:
            date = answer.headers["Date"]
    except HTTPError as error:
        date = error.headers["Date"]
    except OSError:
        return None
    return (before + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5 if date else None
