"""spec.failurePolicy.keepClusterSeconds: the Ray cluster of a failed job is kept for debugging before its release."""

from __future__ import annotations

from datetime import datetime, timedelta

from rlt_api.status.conditions import Reason
from rlt_operator.conditions import ConditionUpdate, format_time
from rlt_operator.lifecycle.cluster_ready import build_cluster_ready
from rlt_operator.memory.clocks import count_kept_seconds
from rlt_operator.observation import Observed


def keep_cluster(observed: Observed, now: datetime) -> tuple[ConditionUpdate, float] | None:
    """ClusterReady of a kept cluster, and the seconds until its release. None if it is to be released, or gone."""
    job = observed.job
    cluster = observed.owned_cluster
    if job.spec is None or job.cancel_requested or cluster is None or cluster.deleting:
        return None
    if job.status.completion_time is None or (kept := count_kept_seconds(job.spec, job.status)) == 0:
        return None
    until = datetime.fromisoformat(job.status.completion_time) + timedelta(seconds=kept)
    if now >= until:
        return None
    message = (
        f"The Ray cluster is kept until {format_time(until)} (spec.failurePolicy.keepClusterSeconds). "
        f"`rlt cancel {job.name}` releases it now."
    )
    ready = build_cluster_ready(observed, job.spec)
    return ConditionUpdate(ready.status, Reason.KEPT, message), (until - now).total_seconds()
