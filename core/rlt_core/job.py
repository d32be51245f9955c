"""An RLTrainingJob as rlt reads it: frozen values, parsed from the API's JSON. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_api.finding import Finding
from rlt_api.rules.queues import QUEUE_LABELS
from rlt_api.spec import OPERATOR, RLTrainingJobSpec
from rlt_api.status import RLTrainingJobStatus, RuntimeSnapshot
from rlt_api.validation import validate_job
from rlt_core import names

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""


@dataclass(frozen=True)
class Job:
    """An RLTrainingJob."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    deleting: bool
    spec: RLTrainingJobSpec | None
    """The job and its runtime as one spec. None if this operator cannot read it; then `findings` say why."""
    status: RLTrainingJobStatus
    given: Mapping[str, Any] = field(default_factory=dict)
    """Its own spec as JSON: what is not in it came from the runtime, or is a default."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the spec."""
    runtime: RuntimeSnapshot | None = None
    """The runtime: as the status keeps it, or as it is now if the job has not been accepted yet. None if the job names
    none, or none that there is."""
    managed_by: str = OPERATOR
    """The controller that runs the job."""
    queue: str | None = None
    """The LocalQueue that admits its RayCluster: the job's label, else spec.scheduling.queueName."""
    cancel_requested: bool = False
    """Whether the annotation rlt.dev/cancel is `true`."""


def parse_status(manifest: Manifest) -> RLTrainingJobStatus:
    """The job's status. One that a newer operator wrote may hold more than this one knows."""
    return RLTrainingJobStatus.model_validate(manifest.get("status", {}), extra="ignore")


def parse_job(manifest: Manifest, runtime: RuntimeSnapshot | None = None) -> Job:
    """The job as the API server stores it, with its runtime. A spec that cannot be used is reported, never raised."""
    metadata, status = manifest["metadata"], parse_status(manifest)
    snapshot = status.runtime_snapshot or runtime
    validated = validate_job(metadata["name"], manifest.get("spec", {}), snapshot.spec if snapshot else None)
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        resource_version=metadata["resourceVersion"],
        deleting="deletionTimestamp" in metadata,
        spec=validated.spec,
        status=status,
        given=manifest.get("spec", {}),
        findings=validated.findings,
        runtime=snapshot,
        managed_by=manifest.get("spec", {}).get("managedBy") or OPERATOR,
        queue=metadata.get("labels", {}).get(names.QUEUE_LABEL)
        or (_kueue_queue_name(validated.spec) if validated.spec else None),
        cancel_requested=metadata.get("annotations", {}).get(names.CANCEL_ANNOTATION) == "true",
    )


def _kueue_queue_name(spec: RLTrainingJobSpec) -> str | None:
    """The queue, unless it is the scheduler's own."""
    return None if spec.scheduling.scheduler_name in QUEUE_LABELS else spec.scheduling.queue_name


def parse_runtime(manifest: Manifest) -> RuntimeSnapshot:
    """An RLRuntime as it is now."""
    metadata = manifest["metadata"]
    return RuntimeSnapshot(name=metadata["name"], generation=metadata["generation"], spec=manifest["spec"])


def list_excluded_nodes(job: Job) -> list[str]:
    """The nodes that later attempts stay away from, by name."""
    if job.spec is None or not job.spec.failure_policy.exclude_faulty_nodes:
        return []
    return sorted({each.node_at_fault for each in job.status.attempts if each.node_at_fault})
