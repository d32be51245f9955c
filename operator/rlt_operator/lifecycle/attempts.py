"""A job's attempts, as its status tells of them: which one has failed, whether another one follows, and where. Pure.

An attempt is a RayCluster of the job's whose training failed; its uid tells it from the others. So nothing is counted
twice, however often it is looked at: while the RayCluster of the last attempt is there, it has still to be released.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.conditions import Reason
from rlt_api.status import Attempt
from rlt_operator.observation import Observed, preflighted, submitted

RESTARTABLE = {Reason.PREFLIGHT_FAILED, Reason.PROGRAM_FAILED, Reason.HEAD_LOST}
"""Reasons of Failed after which another attempt may do better."""
MAX_ATTEMPTS = 32
"""Attempts that the status keeps."""


def attempts_allowed(observed: Observed) -> int:
    """Attempts in all."""
    spec = observed.job.spec
    return 1 + spec.failure_policy.max_restarts if spec else 1


def given_up(observed: Observed) -> Attempt | None:
    """The last attempt, while its RayCluster or one of its pods is there."""
    attempts, cluster = observed.job.status.attempts, observed.cluster
    if not attempts:
        return None
    uid = attempts[-1].ray_cluster_uid
    there = cluster.uid == uid if cluster else any(pod.cluster_uid == uid for pod in observed.pods)
    return attempts[-1] if there else None


def in_question(observed: Observed) -> bool:
    """Whether it is to be found out which node was at fault: the nodes are to be looked at."""
    if attempts_allowed(observed) == 1:
        return False
    if attempt := given_up(observed):
        return attempt.node_at_fault is None
    ray = observed.ray
    if ray is None or ray.unreachable:
        return False
    job = ray.job or (ray.preflight.job if ray.preflight else None)
    return job.status == "FAILED" if job else submitted(observed) or preflighted(observed)


def with_attempt(attempts: Sequence[Attempt], attempt: Attempt) -> list[Attempt]:
    """The list with this attempt, once. Of too many those are dropped first that blame no node, the oldest ahead."""
    kept = [each for each in attempts if each.ray_cluster_uid != attempt.ray_cluster_uid]
    if len(kept) == MAX_ATTEMPTS:
        kept.remove(next((each for each in kept if each.node_at_fault is None), kept[0]))
    return [*kept, attempt]
