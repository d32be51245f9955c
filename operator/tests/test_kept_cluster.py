"""spec.failurePolicy.keepClusterSeconds keeps the cluster of a failed job, and rlt cancel releases it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def ended(ray: Ray, **spec: Any) -> Observed:
    job = o.job({**o.SPEC, "failurePolicy": {"keepClusterSeconds": 3600}, "ttlSecondsAfterFinished": 60, **spec})
    running = o.after(replace(Observed(job), cluster=o.cluster(), pods=o.pods(), ray=o.running()))
    return o.after(replace(running, ray=ray))


FAILED = ended(o.ended("FAILED", "boom"))


def test_the_cluster_of_a_failed_job_is_kept() -> None:
    kept = plan(FAILED, o.NOW + MINUTE)
    assert (kept.delete_cluster, kept.requeue_after) == (None, 3540)
    assert kept.status
    assert kept.status.phase == Phase.FAILED
    assert kept.status.message == (
        "boom The Ray cluster is kept until 2026-01-02T04:04:05Z (spec.failurePolicy.keepClusterSeconds). "
        "`rlt cancel sum` releases it now."
    )
    ready = find_condition(kept.status, C.CLUSTER_READY)
    assert ready
    assert (ready.status, ready.reason) == ("True", Reason.KEPT)
    later = o.after(FAILED, now=o.NOW + MINUTE)
    assert plan(later, o.NOW + 2 * MINUTE).status is None
    assert plan(later, o.NOW + HOUR).delete_cluster == o.CLUSTER_UID


def test_the_ttl_counts_afterwards() -> None:
    released = replace(FAILED, cluster=None, pods=(), ray=None)
    assert o.after(released, now=o.NOW + HOUR).job.status.message == "boom"
    assert not plan(released, o.NOW + HOUR + MINUTE - timedelta(seconds=1)).delete_job
    assert plan(released, o.NOW + HOUR).requeue_after == 60
    assert plan(released, o.NOW + HOUR + MINUTE).delete_job


def test_rlt_cancel_releases_it_and_the_reason_remains() -> None:
    cancelled = replace(FAILED, job=replace(FAILED.job, cancel_requested=True))
    assert plan(cancelled, o.NOW + MINUTE).delete_cluster == o.CLUSTER_UID
    failed = find_condition(o.after(cancelled, now=o.NOW + MINUTE).job.status, C.FAILED)
    assert failed
    assert failed.reason == Reason.PROGRAM_FAILED


def test_other_ends_release_the_cluster() -> None:
    succeeded = ended(o.ended("SUCCEEDED", o.final_log()))
    assert is_true(succeeded.job.status, C.SUCCEEDED)
    assert plan(succeeded, o.NOW).delete_cluster
    running = o.after(replace(Observed(FAILED.job), cluster=o.cluster(), pods=o.pods(), ray=o.running()))
    fresh = replace(
        running,
        job=replace(o.job({**o.SPEC, "failurePolicy": {"keepClusterSeconds": 60}}), status=o.STARTED.job.status),
    )
    cancelled = o.after(replace(fresh, job=replace(fresh.job, cancel_requested=True)))
    stopped = o.after(replace(cancelled, ray=o.ended("STOPPED")))
    assert plan(stopped, o.NOW).delete_cluster


def test_only_the_last_attempt_is_kept() -> None:
    failed = ended(o.ended("FAILED", "boom"), failurePolicy={"keepClusterSeconds": 3600, "maxRestarts": 1})
    assert plan(failed, o.NOW).delete_cluster == o.CLUSTER_UID
