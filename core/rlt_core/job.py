"""An RLTrainingJob, parsed from the JSON of the API. Frozen values, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rlt_api.findings.finding import Finding
from rlt_api.rules.queues import QUEUE_LABELS
from rlt_api.spec.job_spec import OPERATOR, RLTrainingJobSpec
from rlt_api.spec.runtime import list_accelerators
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy, add_default_runtime
from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import Attempt, CurrentAttempt, RLTrainingJobStatus, RuntimeOrigin, RuntimeSnapshot
from rlt_api.validation.resolved_spec import (
    MUTABLE_FIELDS,
    build_resolved_spec,
    load_resolved_spec,
    read_resolved_spec,
)
from rlt_api.validation.validate import get_queue_label, validate_job
from rlt_core import names

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""

MAX_KNOWN_SPECS = 64
"""Number of parsed specs that are kept. Each takes about ten times the memory of its text."""
MAX_KNOWN_CHARACTERS = 16 * 1024
"""Maximum length of their texts. A longer one is parsed again in each reconciliation."""


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
    """The spec of the job merged with its runtime. None if it is invalid; `findings` has the reasons."""
    status: RLTrainingJobStatus
    submitted_spec: Mapping[str, Any] = field(default_factory=dict)
    """The spec as submitted, as JSON. Fields that only `spec` has come from the runtime or are defaults. Empty for a
    spec that is too large: nothing reads it."""
    findings: tuple[Finding, ...] = ()
    """Problems of the spec. Of a kept resolved spec: what this version does not have."""
    resolved_spec: Mapping[str, Any] | None = None
    """The resolved spec, as JSON: the kept one in the status, or the current one until the job is accepted. None if the
    spec is invalid."""
    runtime: RuntimeOrigin | None = None
    """The runtime of the resolved spec. None if the job has no runtime, or if the runtime does not exist."""
    managed_by: str = OPERATOR
    """The controller that runs the job."""
    queue: str | None = None
    """The Kueue LocalQueue that admits the RayCluster: the label of the job, else spec.scheduling.queueName."""
    created: str | None = None
    """Time of its creation (RFC 3339, UTC)."""
    newer_attempt: Mapping[str, Any] = field(default_factory=dict)
    """The fields of status.currentAttempt that a newer operator has recorded, and that this version does not have."""
    cancel_requested: bool = False
    """Whether the annotation rlt.dev/cancel is `true`."""
    token_suffix: str = ""
    """End of the Secret's name for the token of the present attempt."""

    @property
    def has_ended(self) -> bool:
        """Whether Succeeded or Failed is True."""
        final = (ConditionType.SUCCEEDED, ConditionType.FAILED)
        return any(each.type in final and each.status == "True" for each in self.status.conditions)

    @property
    def has_newer_fields(self) -> bool:
        """Whether the kept resolved spec has values of fields that only a newer operator has."""
        return self.status.resolved_spec is not None and bool(self.findings)

    @property
    def is_paused(self) -> bool:
        """Whether a pause by a rule over the metrics is recorded for the current spec."""
        return self.status.pause is not None and self.status.pause.generation == self.generation

    @property
    def is_suspended(self) -> bool:
        """Whether the user or a pause suspends the job."""
        return (self.spec is not None and self.spec.suspend) or self.is_paused


def parse_status(manifest: Manifest) -> RLTrainingJobStatus:
    """Parse the status of a job. Unknown fields, written by a newer operator, are ignored."""
    return RLTrainingJobStatus.model_validate(manifest.get("status", {}), extra="ignore")


def parse_job(manifest: Manifest, runtime: RuntimeSnapshot | None = None, policy: RuntimePolicy = ANY_RUNTIME) -> Job:
    """Parse a job from the API server. An invalid spec is reported in `findings`, not raised.

    `runtime` is the current runtime of the job, and `policy` its namespace's. They have no effect on a job whose
    status has a resolved spec.
    """
    metadata = manifest["metadata"]
    status = parse_status(manifest)
    resolved = _resolve(manifest, status, runtime, policy)
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        resource_version=metadata["resourceVersion"],
        deleting="deletionTimestamp" in metadata,
        spec=resolved.spec,
        status=status,
        submitted_spec={} if any(each.rule == "size" for each in resolved.findings) else manifest.get("spec", {}),
        findings=resolved.findings,
        resolved_spec=resolved.json,
        runtime=resolved.runtime,
        managed_by=manifest.get("spec", {}).get("managedBy") or OPERATOR,
        queue=metadata.get("labels", {}).get(names.QUEUE_LABEL)
        or (_kueue_queue_name(resolved.spec) if resolved.spec else None),
        created=metadata.get("creationTimestamp"),
        newer_attempt=_list_newer_fields(manifest),
        cancel_requested=metadata.get("annotations", {}).get(names.CANCEL_ANNOTATION) == "true",
    )


def _list_newer_fields(manifest: Manifest) -> Mapping[str, Any]:
    stored = manifest.get("status", {}).get("currentAttempt") or {}
    known = {info.alias for info in CurrentAttempt.model_fields.values()}
    return {key: value for key, value in stored.items() if key not in known}


@dataclass(frozen=True)
class _Resolved:
    json: Mapping[str, Any] | None = None
    spec: RLTrainingJobSpec | None = None
    runtime: RuntimeOrigin | None = None
    findings: tuple[Finding, ...] = ()


def _resolve(
    manifest: Manifest, status: RLTrainingJobStatus, runtime: RuntimeSnapshot | None, policy: RuntimePolicy
) -> _Resolved:
    """The kept resolved spec with the fields of the job that can change, or the resolved spec to keep."""
    submitted = manifest.get("spec", {})
    if status.resolved_spec is not None:
        changing = {key: submitted[key] for key in MUTABLE_FIELDS & submitted.keys()}
        if status.rollout_replicas and changing.get("rolloutReplicas") is None:
            changing["rolloutReplicas"] = status.rollout_replicas
        mutable = json.dumps(changing, sort_keys=True)
        is_short = len(status.resolved_spec) + len(mutable) <= MAX_KNOWN_CHARACTERS
        read = _read_known if is_short else _read_kept
        return replace(read(status.resolved_spec, mutable), runtime=status.runtime)
    metadata = manifest["metadata"]
    current = runtime.spec if runtime else None
    with_runtime = add_default_runtime(submitted, policy)
    validated = validate_job(metadata["name"], with_runtime, current, policy, get_queue_label(metadata))
    origin = _describe_runtime(runtime) if runtime else None
    if validated.spec is None:
        return _Resolved(runtime=origin, findings=validated.findings)
    resolved = build_resolved_spec(with_runtime, current)
    return _Resolved(resolved, read_resolved_spec(resolved, submitted).spec, origin, validated.findings)


def _read_kept(text: str, mutable: str) -> _Resolved:
    """Read status.resolvedSpec, with the job's mutable fields as JSON. Nothing may change what it returns."""
    resolved = load_resolved_spec(text)
    kept = read_resolved_spec(resolved, json.loads(mutable))
    return _Resolved(resolved, kept.spec, findings=kept.findings)


_read_known = lru_cache(MAX_KNOWN_SPECS)(_read_kept)
"""The jobs of a sweep share a spec, and a job that starts is reconciled about ten times within seconds."""


def _describe_runtime(runtime: RuntimeSnapshot) -> RuntimeOrigin:
    return RuntimeOrigin(name=runtime.name, generation=runtime.generation, accelerators=list_accelerators(runtime.spec))


def _kueue_queue_name(spec: RLTrainingJobSpec) -> str | None:
    """The name of the Kueue queue. None if the queue belongs to another scheduler."""
    return None if spec.scheduling.scheduler_name in QUEUE_LABELS else spec.scheduling.queue_name


def parse_runtime(manifest: Manifest) -> RuntimeSnapshot:
    """Parse an RLRuntime."""
    metadata = manifest["metadata"]
    return RuntimeSnapshot(name=metadata["name"], generation=metadata["generation"], spec=manifest["spec"])


def get_attempt_number(status: RLTrainingJobStatus) -> int:
    """Number of the current or the next attempt, from 1. A resumed job continues its attempt."""
    return status.attempts[-1].number + 1 if status.attempts else 1


def identify(attempt: Attempt | CurrentAttempt) -> tuple[str, int]:
    """What identifies an attempt: its RayCluster, and the number of the execution there."""
    return attempt.ray_cluster_uid, attempt.execution


def has_ended(attempt: Attempt | CurrentAttempt, attempts: Sequence[Attempt]) -> bool:
    """Whether the attempt is one of those that have ended early."""
    return any(identify(each) == identify(attempt) for each in attempts)


def get_cluster_attempt_number(status: RLTrainingJobStatus) -> int:
    """Number of the first attempt on the current RayCluster, whose folder the variables of its pods have."""
    current = status.current_attempt
    uid = current.ray_cluster_uid if current else None
    ended = (each.number for each in status.attempts if each.ray_cluster_uid == uid)
    return next(ended, get_attempt_number(status))


def list_excluded_nodes(job: Job) -> list[str]:
    """Names of the nodes that later attempts exclude because they caused a failure."""
    if job.spec is None or not job.spec.failure_policy.exclude_faulty_nodes:
        return []
    return sorted({each.node_at_fault for each in job.status.attempts if each.node_at_fault})
