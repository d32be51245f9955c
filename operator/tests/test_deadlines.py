"""activeDeadlineSeconds, pendingDeadlineSeconds and ttlSecondsAfterFinished, computed from the status alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.blocks.operations import Preflight
from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.observation import Observed, Ray, RayJob, Rejection
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


def exceeded(plan: Plan) -> bool:
    """Whether the active deadline is exceeded: the request to stop the program is recorded."""
    assert plan.status
    attempt = plan.status.current_attempt
    return attempt is not None and attempt.stop is not None and attempt.stop.reason == Reason.DEADLINE_EXCEEDED


def test_active_deadline_stops_the_program_and_fails_the_job() -> None:
    job = o.changed(o.STARTED, active_deadline_seconds=100)
    assert plan(job, at(99)).requeue_after == pytest.approx(1)
    late = plan(job, at(100))
    assert (exceeded(late), late.stop, failure(late)) == (True, None, None)
    stopping = o.after(job, now=at(100))
    sent = plan_at(stopping, 101)
    assert (sent.stop, sent.delete_cluster, failure(sent), sent.requeue_after) == ("sum-99999999", None, None, 2)
    stopped = replace(stopping, ray=o.ended("STOPPED"))
    assert failure(plan(stopped, at(110))) == Reason.DEADLINE_EXCEEDED
    assert plan(stopped, at(110)).delete_cluster is None
    assert plan(o.after(stopped, now=at(110)), at(110)).delete_cluster == o.CLUSTER_UID


@pytest.mark.parametrize("end", ["STOPPED", "FAILED"])
def test_the_reason_stays_the_active_deadline(end: str) -> None:
    """Also if the deadline is extended, or the job suspended, after the request to stop."""
    stopping = o.after(o.changed(o.STARTED, active_deadline_seconds=100), now=at(100))
    ended = replace(stopping, ray=o.ended(end))
    for edited in (ended, o.changed(ended, active_deadline_seconds=10_000), o.suspend(ended)):
        assert failure(plan(edited, at(105))) == Reason.DEADLINE_EXCEEDED


def test_an_active_deadline_waits_for_no_more_than_the_grace_period() -> None:
    stopping = o.after(o.changed(o.STARTED, active_deadline_seconds=100), now=at(100))
    silent = replace(stopping, ray=Ray(unreachable="no route"))
    assert failure(plan_at(silent, 100 + 32)) is None
    late = plan(silent, at(100 + 33))
    assert failure(late) == Reason.DEADLINE_EXCEEDED
    assert late.status
    assert "Ray's job API did not answer: the last checkpoint may be missing" in (late.status.message or "")


def test_a_job_that_ends_before_its_deadline_succeeds() -> None:
    job = o.changed(replace(o.STARTED, ray=o.ended("SUCCEEDED")), active_deadline_seconds=100)
    assert failure(plan(job, at(1000))) is None


def test_suspended_time_does_not_count_as_active() -> None:
    job = resumed(o.changed(o.STARTED, active_deadline_seconds=100), 60)
    assert job.job.status.active_seconds == 60
    assert failure(plan_at(job, 1060 + 39)) is None
    assert not exceeded(plan_at(job, 1060 + 39))
    assert exceeded(plan(job, at(1060 + 40)))


def test_time_without_a_response_of_ray_counts_as_active() -> None:
    silent = o.after(replace(o.STARTED, ray=Ray(unreachable="no route")), now=at(50))
    back = o.after(replace(silent, ray=o.running()), now=at(80))
    ended = o.after(replace(back, ray=o.ended("SUCCEEDED")), now=at(90))
    assert (ended.job.status.active_seconds, ended.job.status.active_since) == (90, None)


def test_deadlines_do_not_apply_to_a_suspended_job() -> None:
    pending = released(o.suspend(o.changed(o.STARTED, active_deadline_seconds=1, pending_deadline_seconds=1)))
    pending = o.after(pending, now=at(0))
    assert pending.job.status.phase == Phase.SUSPENDED
    assert plan(pending, at(10_000)).status is None


def test_a_deadline_can_be_extended() -> None:
    assert exceeded(plan(o.changed(o.STARTED, active_deadline_seconds=10), at(20)))
    assert not exceeded(plan(o.changed(o.STARTED, active_deadline_seconds=30), at(20)))


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


def test_a_running_program_meets_the_pending_deadline() -> None:
    """Also if the operator did not run when the program started."""
    waiting = o.after(o.changed(o.PROVISIONING, pending_deadline_seconds=60))
    assert waiting.job.status.pending_since
    seen = plan(replace(o.RUNNING, job=waiting.job), at(100))
    assert failure(seen) is None
    assert seen.status
    assert (seen.status.pending_since, seen.status.active_since) == (None, "2026-01-02T03:05:45Z")


PENDING = Ray(job=RayJob("PENDING"))


@pytest.mark.parametrize("ray", [None, Ray(), Ray(unreachable="no route"), PENDING, o.checks("RUNNING")])
@pytest.mark.parametrize("rejection", [None, Rejection("No available agent")])
def test_the_pending_deadline_applies_until_the_program_runs(ray: Ray | None, rejection: Rejection | None) -> None:
    """A ready cluster on which Ray rejects the program, does not answer or does not start it."""
    ready = o.changed(
        o.READY, pending_deadline_seconds=3600, preflight=Preflight(level="none" if ray == PENDING else "basic")
    )
    seen = replace(ready, ray=ray, rejection=rejection)
    for minute in range(59):
        seen = o.after(seen, now=at(60 * minute))
        assert seen.job.status.pending_since == "2026-01-02T03:04:05Z"
    assert failure(plan_at(seen, 3599)) is None
    assert failure(plan(seen, at(3600))) == Reason.PENDING_DEADLINE_EXCEEDED


def test_a_silent_ray_does_not_meet_the_pending_deadline_of_a_program_that_may_run() -> None:
    accepted = o.after(o.changed(replace(o.READY, ray=PENDING), pending_deadline_seconds=60))
    silent = plan(replace(accepted, ray=Ray(unreachable="no route")), at(100))
    assert failure(silent) is None
    assert silent.status
    assert silent.status.active_since


@pytest.mark.parametrize("skew", [timedelta(hours=-2), timedelta(hours=2)])
def test_the_ttl_does_not_depend_on_the_clock_of_the_head(skew: timedelta) -> None:
    end_ms = round((o.NOW + skew).timestamp() * 1000)
    ray = Ray(job=RayJob("SUCCEEDED", start_ms=end_ms - 45_000, end_ms=end_ms))
    done = released(o.after(replace(o.STARTED, ray=ray)))
    job = o.after(o.changed(done, ttl_seconds_after_finished=3600))
    assert job.job.status.completion_time == "2026-01-02T03:04:05Z"
    assert (job.job.status.start_time or "") <= "2026-01-02T03:04:05Z"
    assert not plan(job, at(3599)).delete_job
    assert plan(job, at(3600)).delete_job


def finished(ttl: Any) -> Observed:
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    return o.changed(o.after(released(done)), ttl_seconds_after_finished=ttl)


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    job = finished(100)
    ended = datetime.fromisoformat(job.job.status.completion_time or "")
    early = plan(job, ended + timedelta(seconds=99))
    assert not early.delete_job
    assert early.requeue_after == pytest.approx(1)
    assert plan(job, ended + timedelta(seconds=100)) == Plan(delete_job=True)


def test_a_finished_job_is_kept_without_a_ttl() -> None:
    assert not plan(finished(None), at(10**8)).delete_job


def test_a_job_is_not_deleted_before_its_pods() -> None:
    job = replace(finished(0), pods=o.pods())
    assert not plan(job, at(10**6)).delete_job
    assert is_true(job.job.status, C.SUCCEEDED)


PENDING = Ray(job=RayJob("PENDING"))


def test_a_head_that_reports_the_program_as_pending_does_not_escape_the_active_deadline() -> None:
    accepted = o.after(o.changed(replace(o.READY, ray=PENDING), active_deadline_seconds=100))
    assert plan(accepted, at(98)).requeue_after == pytest.approx(2)
    assert not exceeded(plan_at(accepted, 99))
    assert exceeded(plan(accepted, at(100)))
    stopping = o.after(accepted, now=at(100))
    assert failure(plan_at(stopping, 100 + 200)) == Reason.DEADLINE_EXCEEDED


def test_a_head_that_reports_a_started_program_as_pending_does_not_stop_the_active_clock() -> None:
    job = o.changed(o.STARTED, active_deadline_seconds=100)
    for second in range(10, 100, 10):
        job = o.after(replace(job, ray=PENDING if second % 20 else o.running()), now=at(second))
    assert exceeded(plan(job, at(100)))


def test_the_time_before_a_program_is_accepted_does_not_count_as_active() -> None:
    waiting = o.after(o.changed(replace(o.READY, ray=Ray()), active_deadline_seconds=100))
    accepted = o.after(replace(waiting, ray=PENDING), now=at(1000))
    assert not exceeded(plan_at(accepted, 1099))
    assert exceeded(plan(accepted, at(1100)))
