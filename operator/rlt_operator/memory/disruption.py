"""The disruption of an attempt: recorded while its pods exist, because a disrupted pod is soon gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.replaceable_pods import count_needed, find_replaceable_group
from rlt_api.status.job_status import Disruption
from rlt_core.fabric.nodes import Node
from rlt_operator.conditions import format_time
from rlt_operator.diagnosis.disruption import FoundDisruption, find_disruption
from rlt_operator.observation import Observed, Pod, is_in
from rlt_operator.verdict import Verdict


def update_disruption(
    observed: Observed, verdict: Verdict, now: datetime, nodes: Sequence[Node] = ()
) -> Disruption | None:
    """The disruption of the current attempt: the recorded one, else one that is observed now.

    A lost pod whose program continues counts until its group is complete again, and another pod has precedence. With
    minReplicas, a group is complete with this number, and a lost pod counts until it has terminated as well. A failure
    days later counts as one.

    None without a RayCluster, for one that is being deleted, and for one that Kueue suspends: its pods end with it.
    None also until the head has the next execution in place: the earlier one has lost the pods.
    `nodes` is as in `find_disruption`.
    """
    status = observed.job.status
    cluster = observed.owned_cluster
    if cluster is None or cluster.deleting or cluster.suspend or observed.job.has_ended:
        return None
    if observed.is_between_executions:
        return None
    recorded = status.disruption if status.disruption and status.disruption.ray_cluster_uid == cluster.uid else None
    if recorded and recorded.worker_group is None:
        return recorded
    pods = list_pods(observed)
    group = find_replaceable_group(observed.job.spec) if observed.job.spec else None
    found = verdict.disruption or find_disruption([pod for pod in pods if not is_in(group, pod)], nodes)
    worker_group = None
    if found is None and group:
        is_complete = _is_complete(group, observed)
        terminating = [pod for pod in pods if pod in observed.pods] if group.min_replicas else []
        lost = [pod for pod in (terminating if is_complete else pods) if is_in(group, pod)]
        found = find_disruption(lost, nodes)
        if recorded and (found or not is_complete):
            return recorded
        worker_group = group.name
    if found is None:
        return None
    return Disruption(
        ray_cluster_uid=cluster.uid,
        reason=found.reason,
        worker_group=worker_group,
        message=_describe(found),
        time=format_time(now),
    )


def list_pods(observed: Observed) -> list[Pod]:
    """The pods of the job's RayCluster, ordered by name, with those that were removed, but not by a scaling."""
    cluster = observed.owned_cluster
    # Of a removed pod, only its deletion without a grace period counts, while it runs: others were observed before.
    removed = (replace(pod, deleting=True, disruption=None, reason=None) for pod in observed.removed_pods)
    scaled = cluster.removed_by_scaling if cluster else ()
    found = (*removed, *observed.pods)
    pods = (pod for pod in found if cluster and pod.cluster_uid == cluster.uid and pod.name not in scaled)
    return sorted(pods, key=lambda pod: pod.name)


def _is_complete(group: WorkerGroup, observed: Observed) -> bool:
    return sum(is_in(group, pod) and pod.ready for pod in observed.cluster_pods) >= count_needed(group)


def _describe(found: FoundDisruption) -> str:
    node = f" on node {found.node}" if found.node else ""
    message = " ".join((found.message or "").split())
    return f"Pod {found.pod}{node} was disrupted: {found.reason}{f': {message}' if message else ''}"[:300]
