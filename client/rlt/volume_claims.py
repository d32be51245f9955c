"""PersistentVolumeClaims in manifest files: whether they hold what the jobs that name them keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlt_api.rules.volume_size import explain_small_volume
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.names import CLAIM_KIND

SIZE = "spec.resources.requests.storage"


def is_claim(manifest: Mapping[str, Any], name: str | None) -> bool:
    """Whether the manifest is the PersistentVolumeClaim `name`."""
    match manifest:
        case {"kind": str(kind), "metadata": {"name": str(own)}}:
            return kind == CLAIM_KIND and own == name
    return False


def warn_small_claim(manifest: Mapping[str, Any], jobs: Mapping[str, RLTrainingJobSpec]) -> Iterator[str]:
    """Yield a sentence for each of `jobs`, by name, that needs more than the PersistentVolumeClaim has."""
    match manifest:
        case {"spec": {"resources": {"requests": {"storage": str(size)}}}}:
            for name, spec in jobs.items():
                if problem := explain_small_volume(spec, size):
                    yield f"{SIZE}: {size}: {problem}: job {name}"
