"""status.currentAttempt: it is recorded before the operator acts on it, and nothing is inferred from conditions.

* the stop of a program, and the head that a program is submitted to;
* a replaced head, and a cluster that Kueue has admitted again;
* statuses of an operator without this field.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import observed as o
import pytest
from planned import reason_of

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import CurrentAttempt, Phase
from rlt_core.children.environment import get_stop_timeout
from rlt_operator.conditions import is_true
from rlt_operator.manifests import parse_pod
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan

SILENT = Ray(unreachable="connection refused")


def at(seconds: float) -> datetime:
    return o.NOW + timedelta(seconds=seconds)


def attempt_of(observed: Observed) -> CurrentAttempt:
    attempt = observed.job.status.current_attempt
    assert attempt
    return attempt


def without_conditions(observed: Observed) -> Observed:
    """The observation with conditions that have other reasons, messages and times."""
    update = {"reason": "Other", "message": "", "last_transition_time": "2020-01-01T00:00:00Z"}
    conditions = [each.model_copy(update=update) for each in observed.job.status.conditions]
    status = observed.job.status.model_copy(update={"conditions": conditions})
    return replace(observed, job=replace(observed.job, status=status))


def saving(observed: Observed) -> Observed:
    """The job has a checkpoint to save, for which Ray waits 295 s."""
    spec = {**o.SPEC, "checkpoint": {"saveFreq": 20}}
    return replace(observed, job=replace(observed.job, spec=o.job(spec).spec))


def moved_head(observed: Observed) -> Observed:
    """KubeRay has replaced the head pod."""
    pods = tuple(replace(pod, uid="uid-new") if pod.is_head else pod for pod in observed.pods)
    return replace(observed, pods=pods)


def test_a_suspension_whose_status_write_fails_stops_nothing() -> None:
    """The user resumes after a 409 or 5xx: the program still runs."""
    assert plan(o.suspend(o.STARTED), o.NOW).stop is None
    resumed = plan(o.suspend(o.suspend(o.STARTED), False), o.NOW)
    assert (resumed.stop, resumed.delete_cluster) == (None, None)


@pytest.mark.parametrize("ray", [o.ended("STOPPED"), SILENT, o.running()])
def test_a_recorded_stop_survives_a_resumption(ray: Ray) -> None:
    """The program that the operator stopped was not stopped outside rlt, whatever the conditions hold."""
    stopping = without_conditions(o.after(o.suspend(saving(o.STARTED))))
    assert attempt_of(stopping).stop
    resumed = o.after(replace(o.suspend(stopping, False), ray=ray))
    assert not is_true(resumed.job.status, C.FAILED)
    assert plan(resumed, o.NOW).stop == (None if ray.job and ray.job.status == "STOPPED" else "sum-99999999")


def test_a_dashboard_that_fails_during_a_suspension_does_not_lose_the_checkpoint() -> None:
    stopping = replace(o.after(o.suspend(saving(o.STARTED))), ray=SILENT)
    for seconds in range(0, 325, 15):
        waiting = plan(stopping, at(seconds))
        assert (waiting.stop, waiting.delete_cluster) == ("sum-99999999", None)
        stopping = o.after(stopping, now=at(seconds))
    assert "connection refused" in (stopping.job.status.message or "")
    back = plan(replace(stopping, ray=o.running()), at(324))
    assert (back.stop, back.delete_cluster) == ("sum-99999999", None)


def test_a_suspension_without_an_answer_of_ray_ends_after_the_grace_period() -> None:
    stopping = replace(o.after(o.suspend(saving(o.STARTED))), ray=SILENT)
    late = plan(stopping, at(325))
    assert late.delete_cluster == o.CLUSTER_UID
    assert reason_of(late, C.SUSPENDED) == Reason.STOP_TIMEOUT
    assert late.status
    assert (
        "Within 325 s after the request to stop, Ray's job API did not answer: the last checkpoint may be missing."
        in (late.status.message or "")
    )
    assert ("Warning", "StopTimeout") in [(event.type, event.reason) for event in late.events]


def test_a_program_that_ray_does_not_stop_is_released_in_the_end() -> None:
    stopping = o.after(o.suspend(saving(o.STARTED)))
    assert plan(stopping, at(619)).delete_cluster is None
    assert plan(stopping, at(620)).delete_cluster == o.CLUSTER_UID


@pytest.mark.parametrize("ray", [None, SILENT, Ray()])
def test_a_program_that_was_not_accepted_has_nothing_to_save(ray: Ray | None) -> None:
    assert plan(o.suspend(replace(o.READY, ray=ray)), o.NOW).delete_cluster == o.CLUSTER_UID


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        (o.COMMAND_SPEC, 295),
        (o.SPEC, 3),
        ({**o.SPEC, "checkpoint": {"saveFreq": 5}}, 295),
        (
            {**o.SPEC, "cluster": {**o.SPEC["cluster"], "env": [{"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": "60"}]}},
            60,
        ),
        (
            {
                **o.SPEC,
                "cluster": {
                    **o.SPEC["cluster"],
                    "env": [{"name": "RAY_JOB_STOP_WAIT_TIME_S", "secretKeyRef": {"name": "a", "key": "b"}}],
                },
            },
            295,
        ),
    ],
)
def test_the_time_to_save_is_that_of_ray(spec: dict[str, Any], seconds: int) -> None:
    job = o.job(spec)
    assert job.spec
    assert get_stop_timeout(job.spec) == seconds


def test_the_head_is_recorded_before_it_gets_the_program() -> None:
    ready = replace(o.FRESH, cluster=o.cluster(), pods=o.pods(), ray=Ray())
    first = plan(ready, o.NOW)
    assert (first.submit, first.requeue_after) == (None, 0)
    assert attempt_of(o.after(ready)) == CurrentAttempt(ray_cluster_uid=o.CLUSTER_UID, head_pod_uid=o.HEAD_UID)
    assert plan(o.after(ready), o.NOW).submit
    assert plan(moved_head(o.after(ready)), o.NOW).submit is None


@pytest.mark.parametrize("ray", [None, SILENT, Ray()])
def test_another_head_than_the_recorded_one_is_a_lost_head(ray: Ray | None) -> None:
    """Also before the new head answers."""
    lost = plan(moved_head(replace(o.STARTED, ray=ray)), o.NOW)
    assert reason_of(lost, C.FAILED) == Reason.HEAD_LOST


def test_a_head_that_restarts_before_the_submission_is_not_lost() -> None:
    moved = o.after(moved_head(o.READY))
    assert not is_true(moved.job.status, C.FAILED)
    submitted = plan(moved, o.NOW)
    assert submitted.submit


def test_another_head_after_an_admission_by_kueue_gets_the_program_again() -> None:
    admitted = o.after(replace(o.RUNNING, cluster=o.cluster(suspend=False, resumed=at(-9))))
    back = moved_head(replace(admitted, cluster=o.cluster(suspend=False, resumed=at(60)), ray=Ray()))
    assert not is_true(o.after(back, now=at(60)).job.status, C.FAILED)
    assert plan(o.after(back, now=at(60)), at(60)).submit
    assert o.after(back, now=at(60)).job.status.active_seconds == 60


def test_a_head_that_does_not_run_is_unreachable_until_another_one_exists() -> None:
    gone = replace(o.STARTED, ray=None, pods=o.pods()[1:])
    silent = plan(gone, at(60))
    assert reason_of(silent, C.RUNNING) == Reason.RAY_UNREACHABLE
    assert silent.status
    assert (silent.status.phase, silent.status.active_since) == (Phase.RUNNING, "2026-01-02T03:04:05Z")
    assert "the head pod does not run" in (silent.status.message or "")


def test_a_pod_belongs_to_the_raycluster_that_controls_it() -> None:
    metadata: dict[str, Any] = {"name": "p", "uid": "1"}
    owner = {"kind": "RayCluster", "name": "sum", "uid": o.CLUSTER_UID, "controller": True}
    theirs = parse_pod({"metadata": {**metadata, "ownerReferences": [{**owner, "kind": "ReplicaSet"}]}})
    ours = parse_pod({"metadata": {**metadata, "ownerReferences": [owner]}})
    assert (theirs.cluster_uid, theirs.cluster_name) == (None, None)
    assert (ours.cluster_uid, ours.cluster_name) == (o.CLUSTER_UID, "sum")


def test_the_attempt_is_forgotten_with_the_pods_of_its_cluster() -> None:
    done = o.after(replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log())))
    terminating = o.after(replace(done, cluster=None, ray=None))
    assert attempt_of(terminating).ray_cluster_uid == o.CLUSTER_UID
    assert o.after(replace(terminating, pods=())).job.status.current_attempt is None
