"""The number of pods that only generate, which no step decides: it can change in each situation with a RayCluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rlt_operator.observation import Observed
from rlt_operator.scaling import choose_replicas, plan_scaling
from rlt_operator.verdict import Verdict


def set_scaling(observed: Observed, verdict: Verdict, now: datetime) -> Verdict:
    """Add the change of the number that the job wants, unless its program stops or the RayCluster is released."""
    releases = bool(verdict.delete_cluster or verdict.is_final or verdict.stop or observed.stop_request)
    if releases or observed.job.is_suspended:
        return verdict
    return replace(verdict, scale=plan_scaling(observed), rollout_replicas=choose_replicas(observed))
