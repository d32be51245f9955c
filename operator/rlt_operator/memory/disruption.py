"""The disruption of an attempt: recorded while its pods exist, because a disrupted pod is soon gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from rlt_api.status.job_status import Disruption
from rlt_core.fabric.nodes import Node
from rlt_operator.conditions import format_time
from rlt_operator.diagnosis.disruption import FoundDisruption, find_disruption
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict


def update_disruption(
    observed: Observed, verdict: Verdict, now: datetime, nodes: Sequence[Node] = ()
) -> Disruption | None:
    """The disruption of the current attempt: the recorded one, else one that is observed now.

    None without a RayCluster, for one that is being deleted, and for one that Kueue suspends: its pods end with it.
    `nodes` is as in `find_disruption`.
    """
    status = observed.job.status
    cluster = observed.owned_cluster
    if cluster is None or cluster.deleting or cluster.suspend or observed.job.has_ended:
        return None
    if status.disruption and status.disruption.ray_cluster_uid == cluster.uid:
        return status.disruption
    # Of a removed pod, only its deletion without a grace period counts, while it runs: others were observed before.
    removed = (replace(pod, deleting=True, disruption=None, reason=None) for pod in observed.removed_pods)
    pods = sorted(
        (pod for pod in (*removed, *observed.pods) if pod.cluster_uid == cluster.uid), key=lambda pod: pod.name
    )
    found = verdict.disruption or find_disruption(pods, nodes)
    if found is None:
        return None
    message = _describe(found)
    return Disruption(ray_cluster_uid=cluster.uid, reason=found.reason, message=message, time=format_time(now))


def _describe(found: FoundDisruption) -> str:
    node = f" on node {found.node}" if found.node else ""
    message = " ".join((found.message or "").split())
    return f"Pod {found.pod}{node} was disrupted: {found.reason}{f': {message}' if message else ''}"[:300]
