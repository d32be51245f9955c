"""Kueue suspends and admits the RayCluster. The job reports this, waits, and restarts after an eviction."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Condition, Phase
from rlt_operator.conditions import find_condition
from rlt_operator.manifests import parse_ray_cluster, parse_workload
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan

JOB = o.job({**o.SPEC, "scheduling": {"queueName": "team-a"}})
NEW = replace(o.FRESH, job=JOB)
QUEUED = replace(NEW, cluster=o.cluster(suspend=True))
ADMITTED = replace(o.RUNNING, job=JOB, cluster=o.cluster(suspend=False))


def admitted(observed: Observed) -> Condition:
    found = find_condition(o.after(observed).job.status, C.ADMITTED)
    assert found
    return found


def test_a_job_without_a_queue_has_no_admitted_condition() -> None:
    assert find_condition(o.after(o.FRESH).job.status, C.ADMITTED) is None


@pytest.mark.parametrize(
    ("observed", "status", "reason"),
    [
        (NEW, "False", Reason.WAITING_FOR_QUEUE),
        (QUEUED, "False", Reason.WAITING_FOR_QUEUE),
        (ADMITTED, "True", Reason.QUOTA_RESERVED),
        (replace(ADMITTED, cluster=o.cluster()), "Unknown", Reason.QUEUE_SILENT),
    ],
)
def test_admitted_follows_the_ray_cluster(observed: Observed, status: str, reason: Reason) -> None:
    found = admitted(observed)
    assert (found.status, found.reason) == (status, reason)
    assert "team-a" in found.message


def test_kueues_message_is_quoted() -> None:
    message = "couldn't assign flavors to pod set head: insufficient unused quota for cpu in flavor on-demand"
    queued = replace(QUEUED, queue_message=message)
    assert admitted(queued).message == f"Waiting for admission by queue team-a: {message}"
    assert o.after(queued).job.status.message == admitted(queued).message


def test_kueues_message_is_read_from_the_workload() -> None:
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient quota"}
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted by another"}
    assert parse_workload({"status": {"conditions": [evicted, reserved]}}) == "insufficient quota"
    assert parse_workload({"status": {"conditions": [{**reserved, "status": "True"}]}}) is None
    replaced = {"type": "Finished", "status": "True", "reason": "WorkloadSliceReplaced", "message": "by another"}
    assert parse_workload({"status": {"conditions": [reserved, replaced]}}) is None
    assert parse_workload({}) is None


def test_a_queued_job_is_pending() -> None:
    status = o.after(QUEUED).job.status
    ready = find_condition(status, C.CLUSTER_READY)
    assert ready
    assert (status.phase, ready.reason) == (Phase.PENDING, Reason.WAITING_FOR_QUEUE)
    assert plan(QUEUED, o.NOW).submit is None


def test_an_ended_job_stays_admitted() -> None:
    done = o.after(replace(o.after(ADMITTED), ray=o.ended("SUCCEEDED", o.final_log())))
    assert admitted(replace(done, cluster=None, pods=(), ray=None)).status == "True"


@pytest.mark.parametrize("end", ["STOPPED", "FAILED"])
def test_an_evicted_cluster_is_not_a_failure(end: str) -> None:
    taken = replace(o.after(ADMITTED), cluster=o.cluster(suspend=True), ray=o.ended(end))
    assert o.after(taken).job.status.phase == Phase.PENDING


def test_an_evicted_job_is_submitted_again() -> None:
    taken = o.after(replace(o.after(ADMITTED), cluster=o.cluster(suspend=True), pods=(), ray=None))
    assert taken.job.status.ray_cluster
    assert taken.job.status.ray_cluster.job_id is None
    assert plan(replace(taken, cluster=o.cluster(suspend=False), pods=o.pods(), ray=Ray()), o.NOW).submit is None
    assert plan(o.after(replace(taken, cluster=o.cluster(suspend=False), pods=o.pods(), ray=Ray())), o.NOW).submit


def test_an_evicted_job_is_submitted_again_after_a_missed_eviction() -> None:
    later = o.NOW + timedelta(seconds=60)
    pods = tuple(replace(pod, uid=f"{pod.uid}-2") for pod in o.pods())
    back = replace(o.after(ADMITTED), cluster=o.cluster(suspend=False, resumed=later), pods=pods, ray=Ray())
    assert plan(o.after(back, now=later), later).submit
    assert o.after(back).job.status.phase == Phase.PROVISIONING


def test_a_head_lost_after_admission_fails_the_job() -> None:
    """The clock of KubeRay may be ahead."""
    cluster = o.cluster(suspend=False, resumed=o.NOW + timedelta(seconds=60))
    lost = replace(o.after(replace(ADMITTED, cluster=cluster)), ray=Ray())
    assert o.after(lost).job.status.phase == Phase.FAILED


def test_a_manually_suspended_cluster_is_reported() -> None:
    status = o.after(replace(o.FRESH, cluster=o.cluster(suspend=True))).job.status
    assert "spec.suspend" in (status.message or "")


SUSPENDED = {"type": "RayClusterSuspended", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}


def test_parse_ray_cluster_reads_suspension() -> None:
    metadata: dict[str, Any] = {"uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    queued = parse_ray_cluster({"metadata": metadata, "spec": {"suspend": True}, "status": {"conditions": [SUSPENDED]}})
    assert (queued.suspend, queued.resumed) == (True, None)
    resumed = {**SUSPENDED, "status": "False"}
    back = parse_ray_cluster({"metadata": metadata, "spec": {}, "status": {"conditions": [resumed]}})
    assert (back.suspend, back.resumed) == (None, o.NOW)


@pytest.mark.parametrize(("gates", "elastic"), [([], False), ([{"name": "kueue.x-k8s.io/elastic-job"}], True)])
def test_an_elastic_ray_cluster_has_the_gate_of_kueue(gates: list[dict[str, str]], elastic: bool) -> None:
    metadata: dict[str, Any] = {"uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
    groups = [{"template": {"spec": {}}}, {"template": {"spec": {"schedulingGates": gates}}}]
    assert parse_ray_cluster({"metadata": metadata, "spec": {"workerGroupSpecs": groups}}).elastic is elastic
