"""Models and data in a bucket, which a step of framework.prepare downloads."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.framework import MAX_STEPS
from rlt_api.findings.finding import Finding
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import list_objects

RULE = "objects"
MAX_PATHS = 120
"""Two arguments each, in a step of at most 256."""


def validate_object_step(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Paths that begin with s3:// add the step download-objects to framework.prepare, which downloads at most 120
    different ones."""
    paths = list_objects(spec)
    if not paths:
        return
    steps = len(spec.framework.prepare)
    if steps >= MAX_STEPS:
        message = f"leave no room for the step that downloads {paths[0].field} (at most {MAX_STEPS} steps)"
        involved = (paths[0].field,)
        fix = "join two steps, or put the files on a volume"
        yield Finding("spec.framework.prepare", f"{steps} steps", message, fix, rule=RULE, involved=involved)
    urls = {path.url for path in paths}
    if len(urls) > MAX_PATHS:
        message = f"is one of {len(urls)} paths in a bucket, and a job downloads at most {MAX_PATHS}"
        last = paths[-1]
        yield Finding(last.field, last.url, message, "join files, or put them on a volume", rule=RULE)


RULES = (validate_object_step,)
