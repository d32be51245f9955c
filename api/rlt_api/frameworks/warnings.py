"""The warnings of the job's framework."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec


def warn_framework(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings of the framework: about its fields, overrides and arguments."""
    for warn in get_framework(spec).warnings:
        yield from warn(spec)
