"""plan(): an invalid spec, a rejected child, and a KubeRay that is missing or does not reconcile are reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import observed as o
import pytest
from planned import reason_of, status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_core.kuberay import KUBERAY_MINIMUM
from rlt_operator.conditions import is_true
from rlt_operator.observation import KubeRayCondition, Observed, Rejection
from rlt_operator.reconcile.plan import plan


def test_without_kuberay_the_job_waits() -> None:
    waiting = plan(replace(o.FRESH, kuberay_installed=False), o.NOW)
    assert f"Install KubeRay {KUBERAY_MINIMUM}" in (status_of(waiting).message or "")
    assert waiting.apply == ()
    assert waiting.requeue_after


def test_a_new_cluster_is_recorded_when_kuberay_has_reconciled_it() -> None:
    """Until then it adds nothing that a user or a later step reads, and would cost a status write."""
    created = replace(o.after(o.FRESH), cluster=o.cluster(has_status=False))
    assert plan(created, o.NOW).status is None
    recorded = status_of(plan(replace(created, cluster=o.cluster()), o.NOW))
    assert recorded.current_attempt
    assert recorded.current_attempt.ray_cluster_uid == o.CLUSTER_UID
    assert recorded.ray_cluster


def test_a_kuberay_that_does_not_reconcile_is_reported() -> None:
    ignored = replace(o.FRESH, cluster=o.cluster(has_status=False))
    assert reason_of(plan(ignored, o.NOW), C.CLUSTER_READY) == Reason.CREATING
    later = o.NOW + timedelta(minutes=1)
    assert reason_of(plan(ignored, later), C.CLUSTER_READY) == Reason.KUBERAY_SILENT
    busy = replace(ignored, kuberay_active=True)
    assert reason_of(plan(busy, later), C.CLUSTER_READY) == Reason.CREATING
    much_later = o.NOW + timedelta(minutes=5)
    assert reason_of(plan(busy, much_later), C.CLUSTER_READY) == Reason.KUBERAY_SILENT
    assert reason_of(plan(replace(busy, kuberay_active_here=True), much_later), C.CLUSTER_READY) == Reason.CREATING


@pytest.mark.parametrize(
    ("busy", "age", "seconds"), [(False, -5, 20), (False, 8, 7), (False, 60, 15), (True, 8, 30), (True, 170, 10)]
)
def test_a_cluster_without_status_is_observed_again_when_kuberay_counts_as_silent(
    busy: bool, age: float, seconds: float
) -> None:
    created = replace(o.FRESH, cluster=o.cluster(has_status=False), kuberay_active=busy)
    assert plan(created, o.NOW + timedelta(seconds=age)).requeue_after == seconds


@pytest.mark.parametrize(("age", "seconds"), [(-5, 5), (0, 5), (60, 15), (600, 30)])
def test_a_cluster_that_starts_longer_is_observed_less_often(age: float, seconds: float) -> None:
    starting = o.after(o.PROVISIONING)
    assert plan(starting, o.NOW + timedelta(seconds=age)).requeue_after == seconds


def test_a_rejected_cluster_reports_the_cause() -> None:
    rejected = plan(replace(o.FRESH, rejection=Rejection("admission webhook denied the request")), o.NOW)
    assert status_of(rejected).message == "admission webhook denied the request"
    assert is_true(status_of(rejected), C.STALLED)


def test_a_rejected_submission_reports_the_cause() -> None:
    rejection = Rejection("No available agent", Reason.SUBMISSION_REJECTED)
    rejected = plan(replace(o.READY, rejection=rejection), o.NOW)
    assert status_of(rejected).message == "Ray rejected the job: No available agent"
    assert rejected.submit


def test_a_rejection_by_the_api_server_is_not_reported_as_one_by_ray() -> None:
    rejection = Rejection("ConfigMap sum-training exists and does not belong to this job.", Reason.NAME_TAKEN)
    rejected = plan(replace(o.READY, rejection=rejection), o.NOW)
    assert status_of(rejected).message == rejection.message
    assert reason_of(rejected, C.STALLED) == Reason.NAME_TAKEN


def test_an_invalid_spec_fails_before_children_are_created() -> None:
    spec = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}
    rejected = plan(Observed(o.job(spec)), o.NOW)
    assert rejected.apply == ()
    assert status_of(rejected).phase == Phase.FAILED
    assert reason_of(rejected, C.ACCEPTED) == Reason.INVALID_SPEC
    assert "spec.training.trainBatchSize: 5" in (status_of(rejected).message or "")
    assert [event.reason for event in rejected.events] == ["InvalidSpec"]


def test_an_accepted_spec_stays_accepted() -> None:
    spec = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}
    job = replace(o.job(spec), status=o.STARTED.job.status)
    assert plan(replace(o.STARTED, job=job), o.NOW).status is None
    assert is_true(job.status, C.RUNNING)


def test_pod_templates_are_validated_before_the_cluster_is_created() -> None:
    head = {"podTemplate": {"spec": {"hostNetwork": True}}}
    job = o.job({**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": head}})
    (check,) = plan(Observed(job), o.NOW).dry_run
    assert check.field == "spec.cluster.head.podTemplate"
    assert plan(replace(o.RUNNING, job=job), o.NOW).dry_run == ()


def test_an_exceeded_quota_is_quoted() -> None:
    message = 'pods "sum-head-x" is forbidden: exceeded quota: small'
    failing = o.cluster(conditions=(KubeRayCondition("ReplicaFailure", "FailedCreateHeadPod", message),))
    pending = plan(replace(o.FRESH, cluster=failing), o.NOW)
    assert message in (status_of(pending).message or "")
    assert status_of(pending).phase == Phase.PENDING
