"""Where a job with spec.storage.bucket has its results, and the command that reads them from there."""

from __future__ import annotations

import shlex

from rlt_core import names
from rlt_core.job import Manifest, parse_job

LOGS = ("the logs of its program and steps", "logs")
"""Arguments of `describe_bucket`: what the bucket has, and the command that reads it."""


def describe_bucket(job: Manifest, contents: str = "the records of its saved steps", command: str = "report") -> str:
    """A sentence with the command that reads the bucket, with a space before. Empty for a job without a bucket, or that
    has not started."""
    parsed = parse_job(job)
    spec = parsed.spec
    if spec is None or not (parsed.status.start_time or parsed.status.attempts):
        return ""
    url = names.run_url(parsed.name, uid=parsed.uid, spec=spec)
    if url is None:
        return ""
    server = f"AWS_ENDPOINT_URL_S3={shlex.quote(spec.storage.endpoint)} " if spec.storage.endpoint else ""
    return (
        f" The bucket has {contents}: read them with `{server}rlt {command} {shlex.quote(url)}`, with "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment."
    )
