"""When a status is written that only counts the pods that start. Pure.

The pods of most jobs start within seconds, and a status write costs the API server more than any other request but the
creation of the RayCluster. A problem of a pod is written at once.
"""

from __future__ import annotations

from datetime import datetime

from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import Condition, RLTrainingJobStatus
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

UNREPORTED_S = 10.0
"""Time from the creation of the first pod in which the starting pods are not reported."""
COUNTS = {"phase", "message", "ray_cluster", "current_attempt", "conditions", "usage"}
"""Fields of the status that starting pods change."""


def count_seconds_to_write(observed: Observed, verdict: Verdict, status: RLTrainingJobStatus, now: datetime) -> float:
    """Seconds until the new status may be written; 0 if it may be now.

    Nothing depends on the delayed record of the RayCluster: the operator acts on it only once it has a ready head.
    """
    old = observed.job.status
    created = [pod.created for pod in observed.cluster_pods if pod.created]
    if not verdict.is_passing or observed.rejection or not created or _differs(old, status):
        return 0.0
    age = (now - min(created)).total_seconds()
    return UNREPORTED_S - age if 0 <= age < UNREPORTED_S else 0.0  # the clock of the API server may be ahead


def _differs(old: RLTrainingJobStatus, new: RLTrainingJobStatus) -> bool:
    """Whether more than COUNTS differs, or another condition than ClusterReady."""
    fields = type(new).model_fields.keys() - COUNTS
    return any(getattr(old, name) != getattr(new, name) for name in fields) or _list_others(old) != _list_others(new)


def _list_others(status: RLTrainingJobStatus) -> list[Condition]:
    return [each for each in status.conditions if each.type != ConditionType.CLUSTER_READY]
