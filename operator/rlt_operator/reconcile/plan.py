"""From what is observed to what is to be done: pure and total.

`POLICIES` reads like the life of a job: the first policy that has something to say decides. Nothing is remembered but
the job's own status, so that the operator may die at any moment and go on from any state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rlt_api.conditions import ConditionType
from rlt_api.spec import OPERATOR
from rlt_api.status import RLTrainingJobStatus
from rlt_core.children.config_map import build_config_map
from rlt_core.children.pod_template import TemplateDryRun
from rlt_core.job import Manifest
from rlt_operator.conditions import Event, events
from rlt_operator.lifecycle import preflight_results
from rlt_operator.lifecycle.deadlines import due_in
from rlt_operator.lifecycle.fabric_condition import fabric_condition as claim_of
from rlt_operator.lifecycle.queueing import admitted_condition
from rlt_operator.lifecycle.restarts import restarted
from rlt_operator.lifecycle.steps import STEPS
from rlt_operator.lifecycle.verdict import Submission, Verdict
from rlt_operator.observation import Observed
from rlt_operator.reconcile.status import network_after, new_status


@dataclass(frozen=True)
class Plan:
    """What `apply` does, in this order, and when to look again."""

    check: tuple[TemplateDryRun, ...] = ()
    """What the API server is asked about before anything is applied."""
    apply: tuple[Manifest, ...] = ()
    """Objects to apply."""
    stop: str | None = None
    """Id of the Ray job to stop."""
    delete_cluster: str | None = None
    """Uid of the RayCluster to delete."""
    submit: Submission | None = None
    """The Ray job to submit."""
    delete_job: bool = False
    """Whether to delete the job itself, in place of the status."""
    status: RLTrainingJobStatus | None = None
    """The new status; None if it has not changed."""
    events: tuple[Event, ...] = ()
    """Transitions to tell of, once the status is written."""
    requeue_after: float | None = None
    """Seconds to the next look if nothing happens before; None if only a change is worth a look."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about the job. Jobs of other controllers are left to them, deleted ones to the garbage collector."""
    job = observed.job
    if job.deleting or job.managed_by != OPERATOR:
        return Plan()
    verdict = decide(observed, now)
    if verdict.delete_job:
        return Plan(delete_job=True)
    if claim := admitted_condition(observed):
        verdict = replace(verdict, claims={**verdict.claims, ConditionType.ADMITTED: claim})
    if claim := preflight_results.preflight_condition(observed):
        verdict = replace(verdict, claims={**verdict.claims, ConditionType.PREFLIGHT_PASSED: claim})
    if found := network_after(job, verdict):
        verdict = replace(verdict, claims={**verdict.claims, ConditionType.FABRIC_VERIFIED: claim_of(found)})
    status = new_status(observed, verdict, now)
    due = due_in(job.spec, status, now) if job.spec else None
    return Plan(
        check=verdict.check,
        apply=verdict.apply or _lost_config(observed, verdict),
        stop=verdict.stop,
        delete_cluster=verdict.delete_cluster,
        submit=verdict.submit,
        status=None if status == job.status else status,
        events=events(job.status, status.conditions),
        requeue_after=min((after for after in (verdict.requeue_after, due) if after is not None), default=None),
    )


def decide(observed: Observed, now: datetime) -> Verdict:
    """The verdict of the first policy that has one. What it says of a failure may hold of one attempt only."""
    verdict = next(verdict for policy in STEPS if (verdict := policy(observed, now)))
    return restarted(observed, verdict, now)


def _lost_config(observed: Observed, verdict: Verdict) -> tuple[Manifest, ...]:
    """The ConfigMap, if somebody deleted or changed it before the Ray job could read it."""
    job, cluster = observed.job, observed.cluster
    waiting = (
        cluster is not None and cluster.owner_uid == job.uid and not cluster.deleting and verdict.delete_cluster is None
    )
    started = observed.ray is not None and observed.ray.job is not None
    if job.spec is None or not waiting or started:
        return ()
    manifest = build_config_map(job, job.spec)
    return () if observed.config == manifest["data"] else (manifest,)
