"""spec.preflight: a Ray job checks the nodes of every new cluster, and the training is submitted after them.

* the results are in the status before the training is submitted, also after a crash;
* a failed check fails the job, with check, node and remedy.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import observed as o
import pytest
from checked import BAD, CHECKING, FAILED, GOOD, ID, PASSED, PODS, READY, SPEC, checks
from planned import condition_of, status_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.memory.preflight import parse_preflight
from rlt_operator.observation import Ray, RayJob, RayPreflight, Rejection
from rlt_operator.reconcile.plan import Plan, plan
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX


def test_the_checks_are_submitted_before_the_training() -> None:
    decided = plan(READY, o.NOW)
    assert decided.submit
    assert decided.submit.id == ID
    assert decided.submit.entrypoint == "exec python3 /etc/rlt/rlt_pod.pyz preflight /etc/rlt/preflight.json"
    assert condition_of(decided, C.PREFLIGHT_PASSED)[0] == "False"


def test_nothing_is_submitted_while_a_pod_is_missing() -> None:
    assert plan(replace(READY, pods=PODS[:2]), o.NOW).submit is None


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_the_training_waits_for_the_checks(state: str) -> None:
    decided = plan(replace(READY, ray=checks(state)), o.NOW)
    assert decided.submit is None
    assert decided.status
    assert decided.status.phase == Phase.PROVISIONING
    assert condition_of(decided, C.PREFLIGHT_PASSED)[:2] == ("Unknown", Reason.CHECKING)
    assert decided.status.ray_cluster
    assert (decided.status.ray_cluster.preflight_job_id, decided.status.ray_cluster.job_id) == (ID, None)


def test_results_are_written_before_the_training_is_submitted() -> None:
    first = plan(replace(o.after(CHECKING), ray=GOOD.ray), o.NOW)
    assert (first.submit, first.requeue_after) == (None, 0)
    assert condition_of(first, C.PREFLIGHT_PASSED)[:2] == ("True", Reason.CHECKED)
    assert condition_of(first, C.PREFLIGHT_PASSED)[2] == "1 of 2 checks passed; clocks: A clock is wrong. Use NTP."
    assert first.status
    assert [check.name for check in first.status.preflight] == ["all-reduce", "clocks"]
    assert ("Normal", "PreflightPassed") in [(event.type, event.reason) for event in first.events]
    second = plan(o.after(GOOD), o.NOW).submit
    assert second
    assert second.id == "sum-99999999"


def test_a_failed_check_fails_the_job_with_check_node_and_remedy() -> None:
    decided = plan(BAD, o.NOW)
    message = "shared-memory (node node-b): /dev/shm has 0.1Gi. Make it larger."
    assert condition_of(decided, C.FAILED) == ("True", Reason.PREFLIGHT_FAILED, message)
    assert condition_of(decided, C.PREFLIGHT_PASSED) == ("False", Reason.PREFLIGHT_FAILED, message)
    assert (decided.submit, decided.delete_cluster) == (None, None)
    assert [(event.type, event.reason) for event in decided.events if event.reason != "Accepted"] == [
        ("Warning", "PreflightFailed"),
    ]
    assert plan(o.after(BAD), o.NOW).delete_cluster == o.CLUSTER_UID


def test_results_are_kept_after_the_cluster_is_deleted() -> None:
    gone = o.after(replace(o.after(BAD), cluster=None, pods=(), ray=None))
    assert [check.result for check in gone.job.status.preflight] == ["passed", "failed"]
    found = find_condition(gone.job.status, C.PREFLIGHT_PASSED)
    assert found
    assert found.reason == Reason.PREFLIGHT_FAILED
    assert plan(gone, o.NOW) == Plan()


def test_checks_that_crash_are_quoted() -> None:
    log = "starting\nrlt-trainer: error: ImportError: libcuda.so.1\n"
    crashed = replace(READY, ray=o.checks("FAILED", log))
    assert condition_of(plan(crashed, o.NOW), C.FAILED)[2] == "ImportError: libcuda.so.1"
    without_log = replace(READY, ray=Ray(preflight=RayPreflight(RayJob("FAILED", "exit code 1"))))
    assert condition_of(plan(without_log, o.NOW), C.FAILED)[2] == "exit code 1"


def test_results_are_kept_while_the_training_runs() -> None:
    running = o.after(replace(o.after(o.after(GOOD)), ray=o.running()))
    again = o.after(running, now=o.NOW + timedelta(minutes=5))
    assert is_true(again.job.status, C.PREFLIGHT_PASSED)
    assert [check.name for check in again.job.status.preflight] == ["all-reduce", "clocks"]
    assert again.job.status.ray_cluster
    assert again.job.status.ray_cluster.preflight_job_id == ID


def test_an_unreachable_ray_keeps_the_condition() -> None:
    for seen in (CHECKING, GOOD):
        unreachable = plan(replace(o.after(seen), ray=Ray(unreachable="connection refused")), o.NOW)
        assert unreachable.submit is None
        before = find_condition(o.after(seen).job.status, C.PREFLIGHT_PASSED)
        assert before
        assert condition_of(unreachable, C.PREFLIGHT_PASSED)[0] == before.status


def test_a_head_replaced_during_the_checks_is_lost() -> None:
    lost = plan(replace(o.after(CHECKING), ray=Ray()), o.NOW)
    assert condition_of(lost, C.FAILED)[1] == Reason.HEAD_LOST
    assert ID in condition_of(lost, C.FAILED)[2]


def test_a_new_cluster_is_checked_again() -> None:
    started = o.after(replace(o.after(o.after(GOOD)), ray=o.running()))
    other = "00000000-0000-0000-0000-000000000000"
    moved = tuple(replace(pod, cluster_uid=other) for pod in PODS)
    recreated = replace(started, cluster=o.cluster(uid=other), pods=moved, ray=Ray())
    assert plan(recreated, o.NOW).submit is None
    assert condition_of(plan(recreated, o.NOW), C.PREFLIGHT_PASSED)[:2] == ("False", Reason.WAITING_FOR_CLUSTER)
    submission = plan(replace(o.after(recreated), ray=Ray()), o.NOW).submit
    assert submission
    assert submission.id == "sum-00000000-preflight"


def test_an_evicted_cluster_is_checked_again() -> None:
    later = o.cluster(suspend=False, resumed=o.NOW + timedelta(minutes=1))
    for seen in (CHECKING, GOOD):
        back = o.after(replace(o.after(seen), cluster=later, ray=Ray()))
        submission = plan(back, o.NOW).submit
        assert submission
        assert submission.id == ID
    taken = plan(replace(o.after(CHECKING), cluster=o.cluster(suspend=True), ray=BAD.ray), o.NOW)
    assert condition_of(taken, C.PREFLIGHT_PASSED)[:2] == ("False", Reason.WAITING_FOR_CLUSTER)
    assert find_condition(status_of(taken), C.FAILED) is None


def test_a_suspension_during_the_checks_releases_the_cluster() -> None:
    decided = plan(o.suspend(o.after(CHECKING)), o.NOW)
    assert decided.delete_cluster == o.CLUSTER_UID
    released = o.after(replace(o.suspend(o.after(CHECKING)), cluster=None, pods=(), ray=None))
    assert released.job.status.preflight == []
    found = find_condition(released.job.status, C.PREFLIGHT_PASSED)
    assert found
    assert found.reason == Reason.WAITING_FOR_CLUSTER


def test_rejected_checks_report_the_cause() -> None:
    rejected = plan(replace(READY, rejection=Rejection("No available agent", Reason.SUBMISSION_REJECTED)), o.NOW)
    assert condition_of(rejected, C.RUNNING)[1:] == (
        Reason.SUBMISSION_REJECTED,
        "Ray rejected the preflight checks: No available agent",
    )
    assert rejected.submit


def test_a_job_without_preflight_has_no_preflight_condition() -> None:
    assert find_condition(o.STARTED.job.status, C.PREFLIGHT_PASSED) is None
    assert o.STARTED.job.status.preflight == []


LIFE = [o.FRESH, o.PROVISIONING, READY, CHECKING, GOOD, GOOD, replace(READY, ray=o.running())]


@pytest.mark.parametrize("missed", range(1 << len(LIFE)))
def test_a_crash_at_any_point_loses_no_result(missed: int) -> None:
    """Each bit of `missed` is a status that is not written. The training is not submitted without the results."""
    status = RLTrainingJobStatus()
    for number, stage in enumerate(LIFE):
        seen = replace(stage, job=replace(o.job(SPEC), status=status))
        decided = plan(seen, o.NOW)
        if decided.submit and not decided.submit.id.endswith("preflight"):
            assert is_true(status, C.PREFLIGHT_PASSED)
            assert status.preflight
        if not missed >> number & 1:
            status = o.after(seen).job.status


def test_unreadable_results_are_ignored() -> None:
    assert parse_preflight("", PODS) == []
    assert parse_preflight(f"{PREFLIGHT_PREFIX}[{{}}]", PODS) == []
    assert parse_preflight(f"{PREFLIGHT_PREFIX}[", PODS) == []
    newer = json.dumps([{**PASSED, "since": "tomorrow"}])
    assert [check.name for check in parse_preflight(f"{PREFLIGHT_PREFIX}{newer}", PODS)] == ["all-reduce"]


def test_the_pods_of_a_check_are_truncated() -> None:
    """The nodes are all pods' nodes."""
    many = {**FAILED, "pods": [*(f"p{number}" for number in range(999)), PODS[0].name]}
    (check,) = parse_preflight(f"{PREFLIGHT_PREFIX}{json.dumps([many])}", PODS)
    assert (len(check.pods), check.pods[-1], check.nodes) == (8, "and 993 more", [PODS[0].node])
