"""The annotation rlt.dev/cancel: it fails a job in every state that is not final."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import observed as o
import pytest

from rlt_api.findings.finding import Finding
from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, StopRequest
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
    "checking": replace(o.READY, job=o.job({**o.SPEC, "preflight": {"level": "basic"}}), ray=o.checks("RUNNING")),
    "stopped": replace(o.after(o.suspend(o.STARTED)), ray=o.ended("STOPPED")),
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


@pytest.mark.parametrize("running", [o.STARTED, o.after(o.suspend(o.STARTED))])
@pytest.mark.parametrize("end", ["STOPPED", "FAILED", "SUCCEEDED"])
def test_a_running_program_is_stopped_before_the_job_fails(running: Observed, end: str) -> None:
    """Also a program that is already being stopped for a suspension. The request is recorded before Ray gets it."""
    first = plan(cancel(running), o.NOW)
    stopping = o.after(cancel(running))
    assert stopping.job.status.current_attempt
    assert stopping.job.status.current_attempt.stop == StopRequest(reason="Cancelled", time="2026-01-02T03:04:05Z")
    assert (first.delete_cluster, stopping.job.status.phase) == (None, Phase.RUNNING)
    assert "Canceling: waiting for the training to save" in (stopping.job.status.message or "")
    second = plan(stopping, o.NOW + timedelta(seconds=20))
    assert (second.stop, second.delete_cluster, second.status) == ("sum-99999999", None, None)
    undone = replace(stopping, job=replace(stopping.job, cancel_requested=False))
    assert plan(undone, o.NOW).stop == "sum-99999999"
    for ended in (stopping, undone):
        done = o.after(replace(ended, ray=o.ended(end)))
        failed = find_condition(done.job.status, C.FAILED)
        assert failed
        assert (failed.status, failed.reason) == ("True", Reason.CANCELLED)
        assert plan(done, o.NOW).delete_cluster == o.CLUSTER_UID


def test_the_stop_is_not_sent_before_it_is_recorded() -> None:
    assert plan(cancel(o.STARTED), o.NOW).stop is None


@pytest.mark.parametrize(("ray", "seconds"), [(Ray(unreachable="x"), 33), (o.running(), 36)])
def test_a_program_that_does_not_stop_is_released_after_the_grace_period(ray: Ray, seconds: int) -> None:
    """Ray's default of 3 s, twice if Ray answers, and 30 s."""
    stopping = replace(o.after(cancel(o.STARTED)), ray=ray)
    early = plan(stopping, o.NOW + timedelta(seconds=seconds - 1))
    assert (early.stop, is_true(early.status or stopping.job.status, C.FAILED)) == ("sum-99999999", False)
    late = o.after(stopping, now=o.NOW + timedelta(seconds=seconds))
    assert is_true(late.job.status, C.FAILED)
    assert "the last checkpoint may be missing" in (late.job.status.message or "")


def test_a_lost_head_has_nothing_to_stop() -> None:
    stopping = replace(o.after(cancel(o.STARTED)), ray=Ray(unreachable="x"), pods=o.pods()[1:])
    assert is_true(o.after(stopping).job.status, C.FAILED)


def test_cancelled_job_is_not_restarted() -> None:
    running = replace(
        o.STARTED, job=replace(o.STARTED.job, spec=o.job({**o.SPEC, "failurePolicy": {"maxRestarts": 3}}).spec)
    )
    status = o.after(replace(o.after(cancel(running)), ray=o.ended("FAILED"))).job.status
    assert (status.phase, status.restarts, status.attempts) == (Phase.FAILED, 0, [])


def test_removing_the_annotation_does_not_resume_the_job() -> None:
    cancelled = o.after(replace(o.after(cancel(o.STARTED)), ray=o.ended("STOPPED")))
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
