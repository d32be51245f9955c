"""Why a Ray cluster is not ready, in the scheduler's, kubelet's or API server's own words: a list of pure checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlt_api.conditions import Reason
from rlt_operator.observation import Container, Observed, Pod, cluster_pods

MAX_MESSAGE_LENGTH = 1024
"""Characters of other programs' words that are passed on."""

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


@dataclass(frozen=True)
class Diagnosis:
    """Why the cluster is not ready."""

    reason: Reason
    message: str
    stalled: bool = False
    """Whether it stays so until somebody does something."""
    placed: bool = True
    """Whether all pods have a node."""


def diagnose(observed: Observed) -> Diagnosis | None:
    """The first cause that a check finds, the gravest first; None if all goes its way."""
    return next((found for check in CHECKS if (found := check(observed))), None)


def crashes(observed: Observed) -> str | None:
    """How containers of the cluster ended, for the message of a failed job; None if none did."""
    ended = [
        (pod, container)
        for pod in cluster_pods(observed)
        for container in pod.containers
        if container.termination and container.termination.exit_code
    ]
    return _crash_message(ended) if ended else None


def _pod_creation(observed: Observed) -> Diagnosis | None:
    for condition in observed.cluster.conditions if observed.cluster else ():
        if condition.type == "ReplicaFailure":
            return Diagnosis(Reason.POD_CREATION_FAILED, f"KubeRay: {shorten(condition.message)}", placed=False)
    return None


def _kuberay_refuses(observed: Observed) -> Diagnosis | None:
    for warning in observed.warnings:
        if (
            observed.cluster
            and warning.about == observed.cluster.uid
            and warning.reason.startswith("InvalidRayCluster")
        ):
            message = f"KubeRay: {shorten(warning.message)}"
            return Diagnosis(Reason.CLUSTER_REFUSED, message, stalled=True, placed=False)
    return None


def _image(observed: Observed) -> Diagnosis | None:
    return _waiting(observed, IMAGE_REASONS, Reason.IMAGE_PULL_FAILED)


def _container_config(observed: Observed) -> Diagnosis | None:
    return _waiting(observed, CONFIG_REASONS, Reason.CONTAINER_CONFIG_FAILED)


def _crash(observed: Observed) -> Diagnosis | None:
    pods = [pod for pod in cluster_pods(observed) if not pod.ready]
    evicted = [pod for pod in pods if pod.phase == "Failed" and pod.message]
    if evicted:
        message = f"Pod {evicted[0].name} ended: {shorten(evicted[0].message or '')}{_others(evicted)}"
        return Diagnosis(Reason.CONTAINER_CRASHED, message)
    ended = [(pod, container) for pod in pods for container in pod.containers if _crashed(container)]
    return Diagnosis(Reason.CONTAINER_CRASHED, _crash_message(ended)) if ended else None


def _unschedulable(observed: Observed) -> Diagnosis | None:
    pods = [pod for pod in cluster_pods(observed) if pod.unschedulable]
    if not pods:
        return None
    message = f"Pod {pods[0].name} cannot be scheduled: {shorten(pods[0].unschedulable or '')}{_others(pods)}"
    return Diagnosis(Reason.UNSCHEDULABLE, message, placed=False)


def _volume(observed: Observed) -> Diagnosis | None:
    waiting = {pod.uid: pod for pod in cluster_pods(observed) if not pod.ready}
    for warning in observed.warnings:
        if warning.reason in VOLUME_EVENTS and (pod := waiting.get(warning.about)):
            return Diagnosis(Reason.VOLUME_FAILED, f"Pod {pod.name}: {shorten(warning.message)}")
    return None


Check = Callable[[Observed], Diagnosis | None]

CHECKS: list[Check] = [
    _kuberay_refuses,
    _pod_creation,
    _image,
    _container_config,
    _crash,
    _unschedulable,
    _volume,
]


def _waiting(observed: Observed, reasons: set[str | None], reason: Reason) -> Diagnosis | None:
    pods = [
        (pod, container)
        for pod in cluster_pods(observed)
        for container in pod.containers
        if container.waiting_reason in reasons
    ]
    if not pods:
        return None
    pod, container = pods[0]
    words = f"{container.waiting_reason}: {container.waiting_message or 'the kubelet says no more'}"
    concerned = list(dict.fromkeys(pod for pod, _ in pods))
    message = f"Pod {pod.name}, container {container.name}: {shorten(words)}{_others(concerned)}"
    return Diagnosis(reason, message, stalled=True)


def _crashed(container: Container) -> bool:
    return container.termination is not None and (container.termination.exit_code != 0 or container.restarts > 0)


def _crash_message(ended: Sequence[tuple[Pod, Container]]) -> str:
    pod, container = ended[0]
    termination = container.termination
    assert termination
    message = (
        f"Pod {pod.name}, container {container.name} ended: {termination.reason}, exit code {termination.exit_code}"
    )
    if words := termination.message.strip():  # the end of its log: of a traceback, the last line says what it was
        message += f": {shorten(words.splitlines()[-1].strip())}"
    return message + _others(list(dict.fromkeys(pod for pod, _ in ended)))


def _others(pods: Sequence[Pod]) -> str:
    more = len(pods) - 1
    return f" (and {more} more pod{'s' * (more > 1)})" if more else ""


def shorten(words: str, *, keep_end: bool = False) -> str:
    """At most LONGEST characters, the first ones or the last ones."""
    if len(words) <= MAX_MESSAGE_LENGTH:
        return words
    return f"…{words[-MAX_MESSAGE_LENGTH:]}" if keep_end else f"{words[:MAX_MESSAGE_LENGTH]}…"
