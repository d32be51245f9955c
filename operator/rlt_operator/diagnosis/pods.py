"""Why a Ray cluster is not ready, with the message of the scheduler, the kubelet or the API server. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rlt_api.status.conditions import Reason
from rlt_operator.observation import Container, Observed, Pod, Termination

MAX_MESSAGE_LENGTH = 1024
"""Maximum number of characters of another program's output in a message."""

IMAGE_REASONS: set[str | None] = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
}
"""The kubelet's reasons (kubernetes pkg/kubelet/images/types.go)."""

CONFIG_REASONS: set[str | None] = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
}
"""The kubelet's reasons (kubernetes pkg/kubelet/kuberuntime)."""

VOLUME_EVENTS = {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}
WAIT_FOR_HEAD = "wait-gcs-ready"
"""KubeRay's init container of workers (pod.go, KubeRay 1.6). It waits without a limit."""
HEAD_TIMEOUT_S = 30.0
"""Time for a worker to connect to a head that is ready. The init container tries it every 5 s."""
SIGKILL = 128 + 9
"""Exit code of a container that was killed. Its output does not explain the end."""
KUBELET_IS_LATE = "cache: timed out waiting for the condition"
"""End of the kubelet's message while it reads a Secret or ConfigMap for the first time. It retries within a second."""


@dataclass(frozen=True)
class Diagnosis:
    """Why the cluster is not ready."""

    reason: Reason
    message: str
    stalled: bool = False
    """Whether the cause remains until a person acts."""
    scheduled: bool = True
    """Whether all pods are bound to a node."""


def diagnose(observed: Observed) -> Diagnosis | None:
    """The first cause that applies; None if none does."""
    return next((found for find_cause in CAUSES if (found := find_cause(observed))), None)


def describe_crashes(observed: Observed) -> str | None:
    """How containers of the cluster crashed, for the message of a failed job; None if none did."""
    ended = [
        (pod, container, container.termination)
        for pod in observed.cluster_pods
        for container in pod.containers
        if container.termination and container.termination.exit_code
    ]
    return _describe_crash(ended) if ended else None


def list_crashed_workers(observed: Observed) -> list[Pod]:
    """The workers with a container that has ended since the program started, and that the kubelet starts again."""
    start_ms = observed.ray.job.start_ms if observed.ray and observed.ray.job else None
    if start_ms is None:
        return []
    started = datetime.fromtimestamp(start_ms // 1000, UTC)
    return [
        pod
        for pod in observed.cluster_pods
        if not pod.is_head and any(_ended_since(each, started) for each in pod.containers if not each.is_init)
    ]


def _ended_since(container: Container, start: datetime) -> bool:
    finished = container.termination.finished if container.termination else None
    return finished is not None and finished >= start


def list_waiting_for_head(pods: Sequence[Pod]) -> list[Pod]:
    """The workers whose init container waits until it can connect to the GCS of the head."""
    return [
        pod
        for pod in pods
        if any(each.name == WAIT_FOR_HEAD and each.running for each in pod.containers) and not pod.deleting
    ]


def list_cut_off(pods: Sequence[Pod], now: datetime) -> list[Pod]:
    """The workers that have waited longer than HEAD_TIMEOUT_S for a connection to a head that is ready."""
    ready = next((pod.ready_since for pod in pods if pod.is_head and pod.ready), None)
    if ready is None:
        return []
    started = {pod.uid: each.started for pod in pods for each in pod.containers if each.name == WAIT_FOR_HEAD}
    waiting = [(pod, started[pod.uid]) for pod in list_waiting_for_head(pods)]
    return [pod for pod, start in waiting if start and (now - max(ready, start)).total_seconds() > HEAD_TIMEOUT_S]


def _find_pod_creation_failure(observed: Observed) -> Diagnosis | None:
    for condition in observed.cluster.conditions if observed.cluster else ():
        if condition.type == "ReplicaFailure":
            return Diagnosis(Reason.POD_CREATION_FAILED, f"KubeRay: {truncate(condition.message)}", scheduled=False)
    return None


def _find_kuberay_rejection(observed: Observed) -> Diagnosis | None:
    for warning in observed.warnings:
        if (
            observed.cluster
            and warning.object_uid == observed.cluster.uid
            and warning.reason.startswith("InvalidRayCluster")
        ):
            message = f"KubeRay: {truncate(warning.message)}"
            return Diagnosis(Reason.CLUSTER_REJECTED, message, stalled=True, scheduled=False)
    return None


def _find_image_failure(observed: Observed) -> Diagnosis | None:
    return _find_waiting(observed, IMAGE_REASONS, Reason.IMAGE_PULL_FAILED)


def _find_container_config_failure(observed: Observed) -> Diagnosis | None:
    return _find_waiting(observed, CONFIG_REASONS, Reason.CONTAINER_CONFIG_FAILED)


def _find_crash(observed: Observed) -> Diagnosis | None:
    pods = [pod for pod in observed.cluster_pods if not pod.ready]
    evicted = [pod for pod in pods if pod.phase == "Failed" and pod.message]
    if evicted:
        message = f"Pod {evicted[0].name} ended: {truncate(evicted[0].message or '')}{_describe_others(evicted)}"
        return Diagnosis(Reason.CONTAINER_CRASHED, message)
    ended = [
        (pod, container, container.termination)
        for pod in pods
        for container in pod.containers
        if container.termination and (container.termination.exit_code or container.restarts)
    ]
    return Diagnosis(Reason.CONTAINER_CRASHED, _describe_crash(ended)) if ended else None


def _find_unschedulable(observed: Observed) -> Diagnosis | None:
    pods = [pod for pod in observed.cluster_pods if pod.unschedulable]
    if not pods:
        return None
    message = f"Pod {pods[0].name} cannot be scheduled: {truncate(pods[0].unschedulable or '')}{_describe_others(pods)}"
    return Diagnosis(Reason.UNSCHEDULABLE, message, scheduled=False)


def _find_volume_failure(observed: Observed) -> Diagnosis | None:
    waiting = {pod.uid: pod for pod in observed.cluster_pods if not pod.ready}
    for warning in observed.warnings:
        if warning.reason not in VOLUME_EVENTS or warning.message.endswith(KUBELET_IS_LATE):
            continue
        if pod := waiting.get(warning.object_uid):
            return Diagnosis(Reason.VOLUME_FAILED, f"Pod {pod.name}: {truncate(warning.message)}")
    return None


FindCause = Callable[[Observed], Diagnosis | None]

CAUSES: list[FindCause] = [
    _find_kuberay_rejection,
    _find_pod_creation_failure,
    _find_image_failure,
    _find_container_config_failure,
    _find_crash,
    _find_unschedulable,
    _find_volume_failure,
]


def _find_waiting(observed: Observed, reasons: set[str | None], reason: Reason) -> Diagnosis | None:
    pods = [
        (pod, container)
        for pod in observed.cluster_pods
        for container in pod.containers
        if container.waiting_reason in reasons
    ]
    if not pods:
        return None
    pod, container = pods[0]
    cause = f"{container.waiting_reason}: {container.waiting_message or 'no message from the kubelet'}"
    affected = list(dict.fromkeys(pod for pod, _ in pods))
    message = f"Pod {pod.name}, container {container.name}: {truncate(cause)}{_describe_others(affected)}"
    return Diagnosis(reason, message, stalled=True)


def _describe_crash(ended: Sequence[tuple[Pod, Container, Termination]]) -> str:
    pod, container, termination = ended[0]
    message = (
        f"Pod {pod.name}, container {container.name} ended: {termination.reason}, exit code {termination.exit_code}"
    )
    output = termination.message.strip()  # the end of the log: the last line of a traceback holds the error
    if output and termination.exit_code != SIGKILL:
        message += f": {truncate(output.splitlines()[-1].strip())}"
    return message + _describe_others(list(dict.fromkeys(pod for pod, *_ in ended)))


def _describe_others(pods: Sequence[Pod]) -> str:
    more = len(pods) - 1
    return f" (and {more} more pod{'s' * (more > 1)})" if more else ""


def truncate(text: str, *, keep_end: bool = False) -> str:
    """At most MAX_MESSAGE_LENGTH characters: the first ones, or the last ones."""
    if len(text) <= MAX_MESSAGE_LENGTH:
        return text
    return f"…{text[-MAX_MESSAGE_LENGTH:]}" if keep_end else f"{text[:MAX_MESSAGE_LENGTH]}…"
