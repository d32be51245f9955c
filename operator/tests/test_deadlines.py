"""activeDeadlineSeconds, pendingDeadlineSeconds and ttlSecondsAfterFinished, computed from the status alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.conditions import ConditionType as C
from rlt_api.conditions import Reason
from rlt_api.status import Phase
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import Plan, plan


def at(seconds: float) -> datetime:
    return o.NOW + timedelta(seconds=seconds)


def failure(plan: Plan) -> str | None:
    """The reason of Failed, if the job has failed."""
    assert plan.status
    found = find_condition(plan.status, C.FAILED)
    return found.reason if found and found.status == "True" else None


def plan_at(observed: Observed, seconds: float) -> Plan:
    """The plan at that time, with the status after it."""
    decided = plan(observed, at(seconds))
    return replace(decided, status=decided.status or observed.job.status)


def released(observed: Observed) -> Observed:
    return replace(observed, cluster=None, pods=(), ray=None)


def resumed(observed: Observed, seconds: float) -> Observed:
    """The job is suspended, released, and runs again 1000 s later."""
    suspended = released(o.after(o.suspend(observed), now=at(seconds)))
    back = o.suspend(o.after(suspended, now=at(seconds)), False)
    return o.after(replace(back, cluster=o.cluster(), pods=o.pods(), ray=o.running()), now=at(seconds + 1000))


def test_active_deadline_fails_the_job() -> None:
    job = o.changed(o.STARTED, active_deadline_seconds=100)
    assert plan(job, at(99)).requeue_after == pytest.approx(1)
    late = plan(job, at(100))
    assert failure(late) == Reason.DEADLINE_EXCEEDED
    assert late.delete_cluster is None
    assert plan(o.after(job, now=at(100)), at(100)).delete_cluster == o.CLUSTER_UID


def test_a_job_that_ends_before_its_deadline_succeeds() -> None:
    job = o.changed(replace(o.STARTED, ray=o.ended("SUCCEEDED")), active_deadline_seconds=100)
    assert failure(plan(job, at(1000))) is None


def test_suspended_time_does_not_count_as_active() -> None:
    job = resumed(o.changed(o.STARTED, active_deadline_seconds=100), 60)
    assert job.job.status.active_seconds == 60
    assert failure(plan_at(job, 1060 + 39)) is None
    assert failure(plan(job, at(1060 + 40))) == Reason.DEADLINE_EXCEEDED


def test_time_without_a_response_of_ray_counts_as_active() -> None:
    silent = o.after(replace(o.STARTED, ray=Ray(unreachable="no route")), now=at(50))
    back = o.after(replace(silent, ray=o.running()), now=at(80))
    assert back.job.status.active_seconds == 80


def test_deadlines_do_not_apply_to_a_suspended_job() -> None:
    pending = released(o.suspend(o.changed(o.STARTED, active_deadline_seconds=1, pending_deadline_seconds=1)))
    pending = o.after(pending, now=at(0))
    assert pending.job.status.phase == Phase.SUSPENDED
    assert plan(pending, at(10_000)).status is None


def test_a_deadline_can_be_extended() -> None:
    assert failure(plan(o.changed(o.STARTED, active_deadline_seconds=10), at(20))) == Reason.DEADLINE_EXCEEDED
    longer = plan(o.changed(o.STARTED, active_deadline_seconds=30), at(20))
    assert longer.status
    assert failure(longer) is None


WAITING: list[Observed] = [
    o.after(o.FRESH),
    o.after(replace(o.FRESH, kuberay_installed=False)),
    o.after(o.PROVISIONING),
    o.after(replace(o.FRESH, cluster=o.cluster(suspend=True))),
]


@pytest.mark.parametrize("waiting", WAITING)
def test_pending_deadline_fails_the_job(waiting: Observed) -> None:
    pending = o.changed(waiting, pending_deadline_seconds=60)
    assert failure(plan_at(pending, 59)) is None
    late = plan(pending, at(60))
    assert failure(late) == Reason.PENDING_DEADLINE_EXCEEDED
    assert late.status
    assert waiting.job.status.message
    assert waiting.job.status.message in (late.status.message or "")


def test_the_job_is_requeued_at_its_pending_deadline() -> None:
    pending = o.after(o.changed(replace(o.FRESH, kuberay_installed=False), pending_deadline_seconds=1))
    assert plan(pending, at(0.5)).requeue_after == pytest.approx(0.5)


@pytest.mark.parametrize("ready", [o.READY, o.RUNNING])
def test_a_ready_cluster_meets_the_pending_deadline(ready: Observed) -> None:
    """Also if the operator did not run when the cluster became ready."""
    waiting = o.after(o.changed(o.PROVISIONING, pending_deadline_seconds=60))
    assert waiting.job.status.pending_since
    seen = plan(replace(ready, job=waiting.job), at(100))
    assert failure(seen) is None
    assert seen.status
    assert seen.status.pending_since is None


def finished(ttl: Any) -> Observed:
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    return o.changed(o.after(released(done)), ttl_seconds_after_finished=ttl)


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    job = finished(100)
    ended = datetime.fromisoformat(job.job.status.completion_time or "")
    early = plan(job, ended + timedelta(seconds=99))
    assert (early.delete_job, early.requeue_after) == (False, pytest.approx(1))
    assert plan(job, ended + timedelta(seconds=100)) == Plan(delete_job=True)


def test_a_finished_job_is_kept_without_a_ttl() -> None:
    assert not plan(finished(None), at(10**8)).delete_job


def test_a_job_is_not_deleted_before_its_pods() -> None:
    job = replace(finished(0), pods=o.pods())
    assert not plan(job, at(10**6)).delete_job
    assert is_true(job.job.status, C.SUCCEEDED)
