"""The condition ClusterReady, from the pods of the RayCluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rlt_api.frameworks.replaceable_pods import count_needed, find_replaceable_group
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import Reason
from rlt_core import names
from rlt_core.children.pod_template import GCS_PORT
from rlt_operator.conditions import ConditionUpdate
from rlt_operator.diagnosis.pods import HEAD_TIMEOUT_S, diagnose, list_cut_off, list_waiting_for_head, truncate
from rlt_operator.observation import NamespaceUse, Observed, Pod, is_in
from rlt_operator.scaling import is_scalable, wants_more_pods


def build_cluster_ready(observed: Observed, spec: RLTrainingJobSpec) -> ConditionUpdate:
    """ClusterReady, from the pods."""
    pods = observed.cluster_pods
    desired = sum(group.replicas for group in spec.cluster.workers)
    heads = sum(pod.ready and pod.is_head for pod in pods)
    workers = sum(pod.ready and not pod.is_head for pod in pods)
    if heads and _has_needed_workers(pods, spec):
        ready = min(workers, desired)
        message = f"The head and {ready} of {desired} workers are ready."
        if ready < desired and (missing := _explain_missing_pods(observed)):
            return ConditionUpdate("True", Reason.WORKERS_MISSING, f"{message} {missing}")
        return ConditionUpdate("True", Reason.READY, message)
    if diagnosis := diagnose(observed):
        return ConditionUpdate("False", diagnosis.reason, diagnosis.message)
    head = "The head is ready" if heads else "The head is starting"
    message = f"{head}, {workers} of {desired} workers are ready."
    if heads and (waiting := list_waiting_for_head(pods)):
        message += f" {_name_pods(waiting)} a connection to {names.head_service(observed.job.name)}:{GCS_PORT}."
    return ConditionUpdate("False", Reason.STARTING, message)


def describe_unreachable_head(observed: Observed, now: datetime) -> ConditionUpdate | None:
    """ClusterReady, if workers wait too long for a connection to the head."""
    pods = list_cut_off(observed.cluster_pods, now)
    if not pods:
        return None
    message = (
        f"The head is ready, and {_name_pods(pods)} a connection to {names.head_service(observed.job.name)}:{GCS_PORT} "
        f"for more than {HEAD_TIMEOUT_S:.0f} s: inspect DNS, NetworkPolicies and firewalls between their nodes and "
        "the head."
    )
    return ConditionUpdate("False", Reason.HEAD_UNREACHABLE, message)


def describe_excess(use: NamespaceUse) -> str:
    """The message about more accelerators than the namespace may have."""
    limit = f"{use.maximum} (maxPerNamespace.accelerators of RLRuntime {use.runtime})"
    return f"spec.cluster.workers: {use.needed} accelerators: exceeds the namespace's maximum of {limit}"


def describe_queue(observed: Observed) -> str:
    """What a suspended RayCluster, or a pod that was added, waits for, with Kueue's message if there is one."""
    if observed.job.queue is None:
        return "The RayCluster is suspended outside rlt. Set its spec.suspend to false to continue the job."
    waiting = f"Waiting for admission by queue {observed.job.queue}"
    return f"{waiting}: {truncate(observed.queue_message)}" if observed.queue_message else f"{waiting}."


def _explain_missing_pods(observed: Observed) -> str | None:
    """Why pods that only generate are missing beside the program; None if they start."""
    if wants_more_pods(observed):
        use = observed.namespace_use
        if not is_scalable(observed):
            return "Kueue has admitted this number of pods: its version, or its configuration, has no elastic jobs."
        if use and not use.fits:
            return f"{describe_excess(use)}, of which other Ray clusters have {use.used}."
    if observed.queue_message:
        return describe_queue(observed)
    diagnosis = diagnose(observed)
    return diagnosis.message if diagnosis else None


def _has_needed_workers(pods: Sequence[Pod], spec: RLTrainingJobSpec) -> bool:
    """Whether the workers are ready with which the program starts: all but some of those that only generate."""
    replaceable = find_replaceable_group(spec)
    generating = sum(pod.ready and is_in(replaceable, pod) for pod in pods)
    others = sum(pod.ready and not pod.is_head and not is_in(replaceable, pod) for pod in pods)
    needed = sum(group.replicas for group in spec.cluster.workers if group is not replaceable)
    return others >= needed and (replaceable is None or generating >= count_needed(replaceable))


def _name_pods(pods: Sequence[Pod]) -> str:
    return f"{len(pods)} of them, such as {pods[0].name}, wait for" if len(pods) > 1 else f"{pods[0].name} waits for"
