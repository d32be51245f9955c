"""The annotation rlt.dev/cancel: it fails a job in every state that is not final."""

from __future__ import annotations

from dataclasses import replace

import observed as o
import pytest

from rlt_api.conditions import ConditionType as C
from rlt_api.conditions import Reason
from rlt_api.finding import Finding
from rlt_api.status import Phase
from rlt_core.job import parse_job
from rlt_core.names import CANCEL_ANNOTATION
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan

INVALID = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}}
FINDING = Finding("spec.new", "1", "Extra inputs are not permitted", "change it")


def cancel(observed: Observed) -> Observed:
    return replace(observed, job=replace(observed.job, cancel_requested=True))


STATES: dict[str, Observed] = {
    "new": o.FRESH,
    "without its runtime": o.after(Observed(o.job({**o.SPEC, "runtimeRef": {"name": "x"}}))),
    "without KubeRay": o.after(replace(o.FRESH, kuberay_installed=False)),
    "queued": o.after(replace(o.FRESH, cluster=o.cluster(suspend=True))),
    "provisioning": o.after(o.PROVISIONING),
    "checking": replace(o.READY, job=o.job({**o.SPEC, "preflight": {"enabled": True}}), ray=o.checks("RUNNING")),
    "running": o.STARTED,
    "unreachable": replace(o.STARTED, ray=Ray(unreachable="x")),
    "suspending": o.after(o.suspend(o.STARTED)),
    "suspended": o.after(replace(o.after(o.suspend(o.STARTED)), cluster=None, pods=(), ray=None)),
    "restarting": o.after(
        replace(o.STARTED, job=o.job({**o.SPEC, "failurePolicy": {"maxRestarts": 3}}), ray=o.ended("FAILED", "boom"))
    ),
    "unreadable": replace(o.STARTED, job=replace(o.STARTED.job, spec=None, findings=(FINDING,))),
}


@pytest.mark.parametrize("state", STATES)
def test_cancellation_fails_the_job_and_releases_the_cluster(state: str) -> None:
    observed = cancel(STATES[state])
    first = plan(observed, o.NOW)
    assert "RayCluster" not in [manifest["kind"] for manifest in first.apply]
    assert (first.submit, first.delete_cluster) == (None, None)
    assert first.status
    assert first.status.phase == Phase.FAILED
    failed = find_condition(first.status, C.FAILED)
    assert failed
    assert (failed.status, failed.reason) == ("True", Reason.CANCELLED)
    assert failed.message == f"The job was cancelled by its annotation {CANCEL_ANNOTATION}."
    assert ("Warning", "Cancelled") in [(event.type, event.reason) for event in first.events]
    assert plan(o.after(observed), o.NOW).delete_cluster == (observed.cluster.uid if observed.cluster else None)


def test_cancelled_job_is_not_restarted() -> None:
    running = replace(
        o.STARTED, job=replace(o.STARTED.job, spec=o.job({**o.SPEC, "failurePolicy": {"maxRestarts": 3}}).spec)
    )
    status = o.after(cancel(running)).job.status
    assert (status.phase, status.restarts, status.attempts) == (Phase.FAILED, 0, [])


def test_removing_the_annotation_does_not_resume_the_job() -> None:
    cancelled = o.after(cancel(o.STARTED))
    later = replace(cancelled, job=replace(cancelled.job, cancel_requested=False), cluster=None, pods=(), ray=None)
    assert plan(later, o.NOW).apply == ()
    assert o.after(later).job.status.phase == Phase.FAILED


@pytest.mark.parametrize("end", ["SUCCEEDED", "FAILED"])
def test_cancellation_does_not_change_a_finished_job(end: str) -> None:
    done = o.after(replace(o.STARTED, ray=o.ended(end)))
    assert o.after(cancel(done)).job.status.phase == done.job.status.phase
    assert not any(each.reason == Reason.CANCELLED for each in o.after(cancel(done)).job.status.conditions)


def test_a_cancelled_job_with_an_invalid_spec_fails_as_invalid() -> None:
    status = o.after(cancel(Observed(o.job(INVALID)))).job.status
    assert not is_true(status, C.ACCEPTED)
    failed = find_condition(status, C.FAILED)
    assert failed
    assert failed.reason == Reason.INVALID_SPEC


@pytest.mark.parametrize(("value", "requested"), [("true", True), ("false", False), ("", False), (None, False)])
def test_only_the_value_true_requests_the_cancellation(value: str | None, requested: bool) -> None:
    manifest = o.manifest()
    if value is not None:
        manifest["metadata"]["annotations"] = {CANCEL_ANNOTATION: value}
    assert parse_job(manifest).cancel_requested == requested
