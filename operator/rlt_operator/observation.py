"""What the operator sees of a job in one look: frozen values, parsed from the API's JSON. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rlt_api.conditions import ConditionType
from rlt_api.training_config import ProgressReport
from rlt_core import names
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, Manifest
from rlt_operator.conditions import condition
from rlt_operator.kuberay import KubeRay


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
    suspend: bool | None = None
    """Its spec.suspend, which is Kueue's: true until there is a place in the queue. None if nobody has set it."""
    resumed: datetime | None = None
    """When it was last no longer suspended, if it has been."""


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
    node: str | None = None
    """The node that it was given."""
    ip: str | None = None
    reason: str | None = None
    """The kubelet's reason, one word, where it has a message."""
    disrupted: str | None = None
    """Why Kubernetes itself ends the pod: the reason of DisruptionTarget."""


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
class RayPreflight:
    """What Ray says of the checks before the training."""

    job: RayJob
    log: str | None = None
    """Their output, once they have ended."""


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
    preflight: RayPreflight | None = None
    """The checks, if Ray knows them. Not asked about once it has the training."""


@dataclass(frozen=True)
class Observed:
    """Everything in one value. Whatever could not be seen is at its default."""

    job: Job
    kuberay_installed: bool = True
    kuberay: KubeRay | None = None
    """What its RayCluster CRD can hold. Seen while there is no RayCluster."""
    nodes: tuple[Node, ...] = ()
    """The nodes of the Kubernetes cluster. Seen while the job's network is undecided, and after a failure."""
    config: Mapping[str, str] | None = None
    """What the ConfigMap holds."""
    cluster: RayCluster | None = None
    queue_says: str | None = None
    """Why Kueue does not admit the RayCluster, while it is suspended."""
    pods: tuple[Pod, ...] = ()
    warnings: tuple[WarningEvent, ...] = ()
    ray: Ray | None = None
    """None if there was no reason to ask."""
    refusal: str | None = None
    """What the API server or Ray answered when the last plan was refused."""


def parse_workloads(workloads: list[Manifest]) -> str | None:
    """Why Kueue does not admit them: what it says of the quota, else of its other checks."""
    for workload in workloads:
        for each in workload.get("status", {}).get("conditions", []):
            if each["type"] in ("QuotaReserved", "Admitted") and each["status"] == "False":
                return str(each["message"])
    return None


def parse_ray_cluster(manifest: Manifest) -> RayCluster:
    """A RayCluster (ray.io/v1)."""
    status = manifest.get("status") or {}
    owner = _controller(manifest)
    conditions = status.get("conditions", [])
    resumed = next((c for c in conditions if c["type"] == "RayClusterSuspended" and c["status"] == "False"), None)
    return RayCluster(
        uid=manifest["metadata"]["uid"],
        owner_kind=owner.get("kind"),
        owner_uid=owner.get("uid"),
        created=datetime.fromisoformat(manifest["metadata"]["creationTimestamp"]),
        deleting="deletionTimestamp" in manifest["metadata"],
        seen_by_kuberay=bool(status),
        conditions=tuple(
            KubeRayCondition(condition["type"], condition.get("reason", ""), condition.get("message", ""))
            for condition in conditions
            if condition["status"] == "True"
        ),
        suspend=manifest.get("spec", {}).get("suspend"),
        resumed=datetime.fromisoformat(resumed["lastTransitionTime"]) if resumed else None,
    )


def parse_pod(manifest: Manifest) -> Pod:
    """A pod that KubeRay made."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    disrupted = conditions.get("DisruptionTarget", {})
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
        node=manifest.get("spec", {}).get("nodeName"),
        ip=status.get("podIP"),
        reason=status.get("reason"),
        disrupted=disrupted.get("reason") if disrupted.get("status") == "True" else None,
    )


def parse_warning(manifest: Manifest) -> WarningEvent:
    """A core/v1 Event."""
    return WarningEvent(
        about=manifest.get("involvedObject", {}).get("uid", ""),
        reason=manifest.get("reason", ""),
        message=manifest.get("message", ""),
    )


def parse_config(manifest: Manifest) -> Mapping[str, str]:
    """What the ConfigMap holds."""
    return dict(manifest.get("data") or {})


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


def submitted(observed: Observed) -> bool:
    """Whether Ray was given the job on the head that there is now, as the status says.

    A cluster that its queue took back and admitted again has another head, which knows of nothing.
    """
    before, cluster = observed.job.status.ray_cluster, observed.cluster
    if cluster is None or cluster.suspend or before is None or before.job_id != submission_id(observed):
        return False
    running = condition(observed.job.status, ConditionType.RUNNING)
    assert running
    return cluster.resumed is None or cluster.resumed <= datetime.fromisoformat(running.last_transition_time)


def preflight_id(observed: Observed) -> str | None:
    """Id of the Ray job that checks the nodes of the RayCluster that there is now."""
    id = submission_id(observed)
    return names.preflight_id(id) if id else None


def preflighted(observed: Observed) -> bool:
    """Whether the head that there is now was given the checks, as the status says. (See `submitted`.)"""
    before, cluster = observed.job.status.ray_cluster, observed.cluster
    if cluster is None or cluster.suspend or before is None or before.preflight_job_id is None:
        return False
    checked = condition(observed.job.status, ConditionType.PREFLIGHT_PASSED)
    if before.preflight_job_id != preflight_id(observed) or checked is None:
        return False
    return cluster.resumed is None or cluster.resumed <= datetime.fromisoformat(checked.last_transition_time)


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
