"""plan(): clusters and pods of an earlier job, or of another owner, are waited for or left alone."""

from __future__ import annotations

from dataclasses import replace

import observed as o
from planned import reason_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import is_true
from rlt_operator.reconcile.plan import Plan, plan


def test_a_new_cluster_waits_for_the_old_pods() -> None:
    waiting = plan(replace(o.FRESH, pods=o.pods()), o.NOW)
    assert waiting.apply == ()
    assert reason_of(waiting, C.CLUSTER_READY) == Reason.EARLIER_CLUSTER


FOREIGN = tuple(replace(pod, cluster_uid=uid, cluster_name=name) for pod, uid, name in zip(
    o.pods(), (None, "other", "theirs"), (None, "other", "sum"), strict=True
))  # fmt: skip
"""Pods with the job's label: of no RayCluster, of another one, and of one with the job's name and another owner."""


def test_foreign_pods_with_the_label_do_not_delay_the_start() -> None:
    assert [manifest["kind"] for manifest in plan(replace(o.FRESH, pods=FOREIGN[:2]), o.NOW).apply] == [
        "ConfigMap",
        "Secret",
        "RayCluster",
    ]


def test_foreign_pods_with_the_label_do_not_delay_the_release() -> None:
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    theirs = o.cluster(uid="theirs", owner_uid=None, owner_kind=None)
    gone = replace(done, cluster=theirs, pods=FOREIGN, ray=None)
    released = o.after(gone)
    assert not is_true(released.job.status, C.RECONCILING)
    assert plan(o.changed(released, ttl_seconds_after_finished=0), o.NOW) == Plan(delete_job=True)
    suspended = o.after(o.suspend(replace(o.STARTED, cluster=theirs, pods=FOREIGN, ray=None)))
    assert suspended.job.status.phase == Phase.SUSPENDED


def test_a_foreign_cluster_is_not_changed() -> None:
    foreign = replace(o.FRESH, cluster=o.cluster(owner_kind=None, owner_uid=None))
    for observed in (foreign, o.suspend(foreign)):
        decided = plan(observed, o.NOW)
        assert (decided.apply, decided.delete_cluster) == ((), None)
    assert reason_of(plan(foreign, o.NOW), C.CLUSTER_READY) == Reason.NAME_TAKEN


def test_a_job_waits_for_the_cluster_of_a_previous_job() -> None:
    earlier = plan(replace(o.FRESH, cluster=o.cluster(owner_uid="earlier")), o.NOW)
    assert reason_of(earlier, C.CLUSTER_READY) == Reason.EARLIER_CLUSTER
    assert earlier.delete_cluster is None
