"""Masks plain-text secrets of the job in everything that its status and events contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any

from rlt_api.findings.masking import mask_text
from rlt_api.spec.plain_secrets import find_secrets
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_core.job import Job

KEPT = re.compile(
    r"""resolved_spec | runtime | phase | ray_cluster | preflight_passed
      | conditions\.(type|status|reason) | findings\.(code|severity) | pause\.rule | preflight\.result
      | attempts\.(ray_cluster_uid|reason|disruption|node_at_fault|finding) | disruption\.(ray_cluster_uid|reason)
      | prepared\.(name|head_pod_uid) | current_attempt\.(ray_cluster_uid|head_pod_uid|prepare_step|stop\.reason)
      | network\.(profile|fabric|vendor|attach|excluded_nodes|overridden_by_user|rejection\.code)
      | network\.env\.(name|rule|source)""",
    re.X,
)
"""Paths that are not masked: the copy of the spec, constants of the operator, and what identifies objects and steps, by
which the operator finds them again. None of it is text of a program."""
MAX_SECRETS = 1000
"""Number of secrets in a spec that are masked wherever they occur. The time grows with
secrets times texts."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def mask_status(job: Job, status: RLTrainingJobStatus, before: RLTrainingJobStatus) -> RLTrainingJobStatus:
    """Mask the secrets of the job in the fields of the status that differ from `before`, which is masked."""
    return mask_known(status, before, lambda: set(list_secrets(job)))


def mask_known(
    status: RLTrainingJobStatus, before: RLTrainingJobStatus, find_known: Callable[[], Collection[str]]
) -> RLTrainingJobStatus:
    """Mask these secrets in the fields of the status that differ from `before`."""
    changed = {name for name in type(status).model_fields if getattr(status, name) != getattr(before, name)}
    if not changed:
        return status
    unmasked = status.model_dump(include=changed)
    masked = _mask(unmasked, "", find_known())
    if masked == unmasked:
        return status
    found = RLTrainingJobStatus.model_validate(masked)
    return status.model_copy(update={name: getattr(found, name) for name in changed})


def _mask(value: Any, path: str, known: Collection[str]) -> Any:
    if KEPT.fullmatch(path):
        return value
    if isinstance(value, str):
        return value if TIME.fullmatch(value) else mask_text(value, known)
    if isinstance(value, list):
        return [_mask(each, path, known) for each in value]
    if isinstance(value, dict):
        return {key: _mask(each, f"{path}.{key}" if path else key, known) for key, each in value.items()}
    return value


def list_secrets(job: Job) -> Iterator[str]:
    """List the first MAX_SECRETS plain-text secrets in the job's spec, as submitted and merged with its runtime."""
    specs = [job.submitted_spec, job.resolved_spec or {}]
    yield from islice((found.value for spec in specs for found in find_secrets(spec, "spec")), MAX_SECRETS)
