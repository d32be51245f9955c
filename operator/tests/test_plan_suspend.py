"""plan(): a suspended job releases its cluster, and a resumed one gets another."""

from __future__ import annotations

from dataclasses import replace

import observed as o
from planned import reason_of, status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import is_true
from rlt_operator.reconcile.plan import plan


def test_suspension_stops_the_job_and_releases_the_cluster() -> None:
    first = plan(o.suspend(o.STARTED), o.NOW)
    assert (first.stop, first.delete_cluster, first.requeue_after) == (None, None, 0)
    assert reason_of(first, C.SUSPENDED) == Reason.STOPPING
    second = plan(o.after(o.suspend(o.STARTED)), o.NOW)
    assert (second.stop, second.delete_cluster) == ("sum-99999999", None)
    then = plan(replace(o.after(o.suspend(o.STARTED)), ray=o.ended("STOPPED")), o.NOW)
    assert (then.stop, then.delete_cluster) == (None, o.CLUSTER_UID)
    assert reason_of(then, C.SUSPENDED) == Reason.RELEASING


def test_a_resumption_waits_until_the_suspension_completes() -> None:
    stopping = o.suspend(o.after(o.suspend(o.STARTED)), False)
    assert plan(stopping, o.NOW).stop == "sum-99999999"
    stopped = o.after(replace(stopping, ray=o.ended("STOPPED")))
    assert not is_true(stopped.job.status, C.FAILED)
    again = o.after(replace(stopped, cluster=None, pods=(), ray=None))
    assert [manifest["kind"] for manifest in plan(again, o.NOW).apply] == [
        "ConfigMap",
        "Secret",
        "RayCluster",
    ]


def test_a_released_job_is_suspended_and_keeps_its_progress() -> None:
    gone = replace(o.after(o.suspend(o.STARTED)), cluster=None, pods=(), ray=None)
    status = status_of(plan(gone, o.NOW))
    assert status.phase == Phase.SUSPENDED
    assert is_true(status, C.SUSPENDED)
    assert not is_true(status, C.RUNNING)
    assert status.progress
    assert status.progress.step == 90


def test_a_job_stopped_by_suspension_has_not_failed() -> None:
    stopped = o.suspend(replace(o.STARTED, ray=o.ended("STOPPED")))
    assert not is_true(status_of(plan(stopped, o.NOW)), C.FAILED)


def test_a_job_that_ended_before_its_suspension_succeeds() -> None:
    done = o.suspend(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    assert status_of(plan(done, o.NOW)).phase == Phase.SUCCEEDED


def test_a_job_created_suspended_creates_nothing() -> None:
    first = plan(o.suspend(o.FRESH), o.NOW)
    assert first.apply == ()
    assert status_of(first).phase == Phase.SUSPENDED


def test_a_resumed_job_gets_a_new_cluster() -> None:
    gone = o.after(replace(o.after(o.suspend(o.STARTED)), cluster=None, pods=(), ray=None))
    resumed = o.suspend(gone, False)
    assert ("Normal", "Resumed") in [(event.type, event.reason) for event in plan(resumed, o.NOW).events]
    assert [manifest["kind"] for manifest in plan(o.after(resumed), o.NOW).apply] == [
        "ConfigMap",
        "Secret",
        "RayCluster",
    ]
