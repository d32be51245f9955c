"""What the operator sees of a job in one look: frozen values, parsed from the API's JSON. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from rlt_api.rules import Finding
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import RLTrainingJobStatus
from rlt_api.training_config import ProgressReport
from rlt_operator import names

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
    """None if this operator cannot read it; then `unreadable` says why."""
    status: RLTrainingJobStatus
    unreadable: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class KubeRayCondition:
    """A condition of the RayCluster that is True."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class RayCluster:
    """The RayCluster that has the job's name."""

    uid: str
    owner_kind: str | None
    """Kind of the controller that its owner references name."""
    owner_uid: str | None
    """Uid of that controller."""
    created: datetime
    deleting: bool
    seen_by_kuberay: bool
    """Whether KubeRay has written a status."""
    conditions: tuple[KubeRayCondition, ...] = ()


@dataclass(frozen=True)
class Termination:
    """How a container ended."""

    reason: str
    exit_code: int
    message: str


@dataclass(frozen=True)
class Container:
    """A container or init container of a pod."""

    name: str
    waiting_reason: str | None = None
    waiting_message: str | None = None
    termination: Termination | None = None
    """How it ended, or how it ended the last time before it was started again."""
    restarts: int = 0


@dataclass(frozen=True)
class Pod:
    """A pod with the job's label."""

    name: str
    uid: str
    cluster_uid: str | None
    """Uid of the RayCluster that it belongs to."""
    is_head: bool
    deleting: bool
    phase: str
    ready: bool
    unschedulable: str | None = None
    """The scheduler's message if it found no node."""
    message: str | None = None
    """The kubelet's message on the pod as a whole, when it was evicted for instance."""
    containers: tuple[Container, ...] = ()


@dataclass(frozen=True)
class WarningEvent:
    """An event of type Warning on the RayCluster or one of its pods."""

    about: str
    """Uid of the object that it is about."""
    reason: str
    message: str


RayJobStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]


@dataclass(frozen=True)
class RayJob:
    """What Ray says of the job that was submitted to it."""

    status: RayJobStatus
    message: str = ""
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True)
class Ray:
    """Answers of the head's HTTP servers."""

    unreachable: str | None = None
    """Why Ray's job API did not answer, if it did not."""
    job: RayJob | None = None
    """None if Ray does not know the job (or did not answer)."""
    log: str | None = None
    """The program's output, once it has ended."""
    progress: ProgressReport | None = None
    """The trainer's own report."""


@dataclass(frozen=True)
class Observed:
    """Everything in one value. Whatever could not be seen is at its default."""

    job: Job
    kuberay_installed: bool = True
    config: str | None = None
    """The training config in the ConfigMap."""
    cluster: RayCluster | None = None
    pods: tuple[Pod, ...] = ()
    warnings: tuple[WarningEvent, ...] = ()
    ray: Ray | None = None
    """None if there was no reason to ask."""
    refusal: str | None = None
    """What the API server or Ray answered when the last plan was refused."""


def parse_job(manifest: Manifest) -> Job:
    """The job as the API server stores it. A spec that this version cannot read is reported, never raised."""
    metadata = manifest["metadata"]
    spec: RLTrainingJobSpec | None = None
    unreadable: tuple[Finding, ...] = ()
    try:
        spec = RLTrainingJobSpec.model_validate(manifest.get("spec", {}))
    except ValidationError as error:
        unreadable = tuple(
            Finding(
                field=".".join(["spec", *map(str, problem["loc"])]),
                value=str(problem["input"])[:100],
                message=problem["msg"],
                fix="change it, or let CRD and operator have the same version",
            )
            for problem in error.errors()
        )
    return Job(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        resource_version=metadata["resourceVersion"],
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        # A status written by a newer operator may hold more than this one knows.
        status=RLTrainingJobStatus.model_validate(manifest.get("status", {}), extra="ignore"),
        unreadable=unreadable,
    )


def parse_ray_cluster(manifest: Manifest) -> RayCluster:
    """A RayCluster (ray.io/v1)."""
    status = manifest.get("status") or {}
    owner = _controller(manifest)
    return RayCluster(
        uid=manifest["metadata"]["uid"],
        owner_kind=owner.get("kind"),
        owner_uid=owner.get("uid"),
        created=datetime.fromisoformat(manifest["metadata"]["creationTimestamp"]),
        deleting="deletionTimestamp" in manifest["metadata"],
        seen_by_kuberay=bool(status),
        conditions=tuple(
            KubeRayCondition(condition["type"], condition.get("reason", ""), condition.get("message", ""))
            for condition in status.get("conditions", [])
            if condition["status"] == "True"
        ),
    )


def parse_pod(manifest: Manifest) -> Pod:
    """A pod that KubeRay made."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        cluster_uid=_controller(manifest).get("uid"),
        is_head=metadata.get("labels", {}).get("ray.io/node-type") == "head",
        deleting="deletionTimestamp" in metadata,
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        unschedulable=scheduled.get("message", "no node was found") if scheduled.get("status") == "False" else None,
        message=status.get("message"),
        containers=tuple(_container(container) for container in containers),
    )


def parse_warning(manifest: Manifest) -> WarningEvent:
    """A core/v1 Event."""
    return WarningEvent(
        about=manifest.get("involvedObject", {}).get("uid", ""),
        reason=manifest.get("reason", ""),
        message=manifest.get("message", ""),
    )


def parse_config(manifest: Manifest, key: str) -> str | None:
    """The training config in the ConfigMap."""
    text: str | None = manifest.get("data", {}).get(key)
    return text


def cluster_pods(observed: Observed) -> tuple[Pod, ...]:
    """The live pods of the RayCluster that there is now, its head first."""
    if observed.cluster is None:
        return ()
    pods = [pod for pod in observed.pods if pod.cluster_uid == observed.cluster.uid and not pod.deleting]
    return tuple(sorted(pods, key=lambda pod: (not pod.is_head, pod.name)))


def submission_id(observed: Observed) -> str | None:
    """Id of the Ray job on the RayCluster that there is now."""
    if observed.cluster is None:
        return None
    return names.submission_id(observed.job.name, ray_cluster_uid=observed.cluster.uid)


def _controller(manifest: Manifest) -> dict[str, str]:
    references = manifest["metadata"].get("ownerReferences", [])
    return next((reference for reference in references if reference.get("controller")), {})


def _container(status: Mapping[str, Any]) -> Container:
    waiting = status.get("state", {}).get("waiting") or {}
    ended = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated")
    return Container(
        name=status["name"],
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        termination=Termination(ended.get("reason", ""), ended["exitCode"], ended.get("message", ""))
        if ended
        else None,
        restarts=status.get("restartCount", 0),
    )
