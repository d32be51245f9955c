"""Jobs that the operator cannot reconcile: an annotation of a user makes it fail on the job, or block all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest import mock

from rlt_core.job import Job, Manifest, parse_job
from rlt_operator.reconcile import observe

ANNOTATION = "example.com/breaks-the-operator"
FAILS = "fails"
BLOCKS = "blocks"
BLOCKED_S = 2.0
"""More CPU time than a reconciliation may take between two awaits."""


class PlanError(Exception):
    """The operator has a bug that this job shows."""


class CpuClock(Protocol):
    """The CPU time of the thread."""

    cpu_seconds: float


def find_failure(manifest: Manifest | None) -> str | None:
    """FAILS, BLOCKS, or None for a job that the operator can reconcile."""
    annotations = (manifest or {"metadata": {}})["metadata"].get("annotations", {})
    failure: str | None = annotations.get(ANNOTATION)
    return failure


@contextmanager
def failing_jobs(clock: CpuClock) -> Iterator[None]:
    """Let the annotation have its effect when the operator parses the job."""

    def parse(manifest: Manifest, *arguments: Any) -> Job:
        failure = find_failure(manifest)
        if failure == FAILS:
            raise PlanError("the operator cannot plan this job")
        clock.cpu_seconds += BLOCKED_S if failure == BLOCKS else 0.0
        return parse_job(manifest, *arguments)

    with mock.patch.object(observe, "parse_job", parse):
        yield
