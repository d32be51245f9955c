"""Where a job with spec.storage.bucket has its results. The client has no keys of the bucket, and names the command."""

from __future__ import annotations

import shlex

from rlt_core import names
from rlt_core.job import Manifest, parse_job


def describe_bucket(job: Manifest) -> str:
    """A sentence with the bucket and the command that copies metrics and rollouts from it, with a space before. Empty
    for a job without a bucket, or that has not started."""
    parsed = parse_job(job)
    spec = parsed.spec
    if spec is None or not (parsed.status.start_time or parsed.status.attempts):
        return ""
    url = names.run_url(parsed.name, uid=parsed.uid, spec=spec)
    if url is None:
        return ""
    folder = url.rpartition("/")[2]
    endpoint = ["--endpoint-url", spec.storage.endpoint] if spec.storage.endpoint else []
    left_out = ["--exclude", "checkpoints/*", "--exclude", "export/*"]
    command = shlex.join(["aws", "s3", "sync", url, folder, *left_out, *endpoint])
    return (
        f" The bucket has metrics and rollouts of its saved steps, in {url}: copy them with `{command}`, and read them "
        f"with `rlt report {folder}`."
    )
