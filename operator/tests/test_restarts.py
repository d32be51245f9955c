"""spec.failurePolicy: a failed attempt is recorded once, its cluster released, and another attempt started."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.lifecycle.restarts import MAX_MESSAGE_LENGTH, needs_faulty_node
from rlt_operator.memory.attempts import MAX_ATTEMPTS, add_attempt
from rlt_operator.observation import Observed, Ray, RayJob, RayPreflight
from rlt_operator.reconcile.plan import plan
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

NODES = tuple(Node(f"node-{number}", conditions={"Ready": "True"}) for number in range(3))
BOOM = o.ended("FAILED", "boom")
KINDS = ["ConfigMap", "Secret", "RayCluster"]
LATER = o.NOW + timedelta(minutes=5)
"""No delay before the next attempt is longer."""
ECC = o.ended("FAILED", "(Rank pid=9, ip=10.0.0.1) RuntimeError: CUDA error: uncorrectable ECC error encountered")


def job(restarts: int = 2, *, exclude: bool = False, **spec: Any) -> Job:
    policy = {"maxRestarts": restarts, "excludeFaultyNodes": exclude}
    return o.job({**o.SPEC, "failurePolicy": policy, **spec})


def uid(attempt: int) -> str:
    return f"{attempt:08}-8888-7777-6666-555555555555"


def on_cluster(observed: Observed, attempt: int, ray: Ray | None, *, ready: bool = True) -> Observed:
    """The job with the cluster of that attempt and its pods on three nodes."""
    pods = tuple(
        replace(pod, cluster_uid=uid(attempt), node=f"node-{number}", ip=f"10.0.0.{number}")
        for number, pod in enumerate(o.pods(ready=ready))
    )
    nodes = NODES if observed.nodes == () else observed.nodes
    return replace(observed, cluster=o.cluster(uid=uid(attempt)), pods=pods, ray=ray, nodes=nodes)


def gone(observed: Observed) -> Observed:
    return replace(observed, cluster=None, pods=(), ray=None)


def fails(observed: Observed, attempt: int, ray: Ray = BOOM) -> Observed:
    """The job after a reconciliation of the running attempt and one of the failed attempt."""
    running = o.after(on_cluster(observed, attempt, o.running(40)))
    return o.after(replace(running, ray=ray))


def status_of(observed: Observed) -> RLTrainingJobStatus:
    return observed.job.status


def reason(observed: Observed, type: C) -> str:
    found = find_condition(status_of(observed), type)
    assert found
    return found.reason


def test_a_failed_attempt_is_written_before_the_cluster_is_deleted() -> None:
    running = o.after(on_cluster(Observed(job()), 1, o.running(40)))
    failed = plan(replace(running, ray=BOOM), o.NOW)
    assert (failed.delete_cluster, failed.apply, failed.requeue_after) == (None, (), 0)
    assert failed.status
    (attempt,) = failed.status.attempts
    assert (attempt.number, attempt.ray_cluster_uid, attempt.reason) == (1, uid(1), Reason.PROGRAM_FAILED)
    assert (attempt.message, attempt.step, attempt.node_at_fault) == ("boom", 40, None)
    assert (attempt.start_time, attempt.completion_time) == ("2026-01-02T03:03:20Z", "2026-01-02T03:04:05Z")
    assert (failed.status.restarts, failed.status.phase) == (1, Phase.PENDING)
    assert failed.status.completion_time is None
    assert failed.status.message == (
        "Attempt 1 failed, restart 1 of 2: boom. "
        "The next attempt starts after 10 s, at 2026-01-02T03:04:15Z, and starts from the beginning."
    )
    assert [(event.type, event.reason) for event in failed.events] == [("Warning", "Restarting")]
    assert plan(fails(Observed(job()), 1), o.NOW).delete_cluster == uid(1)


def test_the_next_attempt_gets_a_new_cluster_and_ray_job() -> None:
    released = o.after(fails(Observed(job()), 1))
    assert reason(released, C.RUNNING) == Reason.RESTARTING
    assert plan(replace(released, cluster=None), o.NOW).apply == ()  # its pods still exist
    assert [manifest["kind"] for manifest in plan(gone(released), LATER).apply] == KINDS
    second = o.after(on_cluster(o.after(gone(released), now=LATER), 2, Ray()), now=LATER)
    submission = plan(second, LATER).submit
    assert submission
    assert submission.id == "sum-00000002"


def test_the_message_names_where_the_next_attempt_starts() -> None:
    saved = o.ended("FAILED", o.final_log(55).replace('"latestCheckpointStep":null', '"latestCheckpointStep":40') + "x")
    assert (status_of(fails(Observed(job()), 1, saved)).message or "").endswith(
        "at 2026-01-02T03:04:15Z, and resumes from step 40."
    )
    never = job(checkpoint={"resume": "never"})
    assert (status_of(fails(Observed(never), 1, saved)).message or "").endswith(
        "03:04:15Z, and starts from the beginning."
    )
    command = replace(job(), spec=o.job({**o.COMMAND_SPEC, "failurePolicy": {"maxRestarts": 1}}).spec)
    assert (status_of(fails(Observed(command), 1)).message or "").endswith("and runs the command again.")


def test_a_later_attempt_can_succeed() -> None:
    second = on_cluster(o.after(gone(fails(Observed(job()), 1))), 2, o.ended("SUCCEEDED", o.final_log()))
    status = status_of(o.after(second))
    assert (status.phase, status.restarts, [each.number for each in status.attempts]) == (Phase.SUCCEEDED, 1, [1])


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_the_job_fails_when_its_restarts_are_used_up(restarts: int) -> None:
    observed = Observed(job(restarts))
    for attempt in range(1, restarts + 2):
        assert not is_true(status_of(observed), C.FAILED)
        observed = o.after(gone(fails(observed, attempt)))
    status = status_of(observed)
    assert (status.phase, reason(observed, C.FAILED)) == (Phase.FAILED, Reason.PROGRAM_FAILED)
    assert status.message == f"boom (after {restarts} restart{'s' * (restarts > 1)})"
    assert (status.restarts, [each.number for each in status.attempts]) == (restarts, [*range(1, restarts + 2)])
    assert plan(observed, o.NOW).apply == ()


def test_without_restarts_there_are_no_attempts() -> None:
    status = status_of(fails(Observed(job(0)), 1))
    assert (status.phase, status.attempts, status.restarts, status.message) == (Phase.FAILED, [], 0, "boom")


@pytest.mark.parametrize(
    ("ray", "phase"),
    [(o.ended("STOPPED"), Phase.FAILED), (Ray(), Phase.PENDING), (BOOM, Phase.PENDING), (ECC, Phase.PENDING)],
)
def test_only_restartable_failures_are_restarted(ray: Ray, phase: Phase) -> None:
    assert status_of(fails(Observed(job()), 1, ray)).phase == phase


@pytest.mark.parametrize(("state", "phase"), [("FAILED", Phase.PENDING), ("STOPPED", Phase.FAILED)])
def test_failed_checks_are_an_attempt(state: Any, phase: Phase) -> None:
    """The only node on which a check failed is excluded. Checks that were stopped outside rlt fail the job."""
    check = {"name": "all-reduce", "result": "failed", "pods": ["sum-workers-worker-b"], "message": "a wrong sum."}
    log = f"{PREFLIGHT_PREFIX}{json.dumps([check])}\n"
    checked = on_cluster(Observed(job(exclude=True, preflight={"level": "basic"})), 1, Ray())
    failed = o.after(replace(o.after(checked), ray=Ray(preflight=RayPreflight(RayJob(state), log))))
    assert status_of(failed).phase == phase
    attempts = [(each.reason, each.node_at_fault, each.step) for each in status_of(failed).attempts]
    assert attempts == ([(Reason.PREFLIGHT_FAILED, "node-1", None)] if state == "FAILED" else [])


def test_deadlines_fail_a_job_with_restarts_left() -> None:
    """Active time is summed over the attempts. Pending time starts from zero with each attempt."""
    first = replace(o.after(on_cluster(Observed(job()), 1, o.running())), ray=BOOM)
    failed = o.after(first, now=o.NOW + timedelta(seconds=60))
    waiting = o.after(gone(failed), now=o.NOW + timedelta(seconds=90))
    assert status_of(waiting).active_seconds == 60
    assert status_of(waiting).pending_since == "2026-01-02T03:05:35Z"
    second = on_cluster(o.changed(waiting, active_deadline_seconds=100), 2, o.running())
    running = o.after(second, now=o.NOW + timedelta(seconds=200))
    late = o.after(running, now=o.NOW + timedelta(seconds=240))
    late = o.after(replace(late, ray=o.ended("STOPPED")), now=o.NOW + timedelta(seconds=241))
    assert reason(late, C.FAILED) == Reason.DEADLINE_EXCEEDED
    assert status_of(late).restarts == 1


def test_a_suspension_during_a_restart_suspends() -> None:
    releasing = o.suspend(fails(Observed(job()), 1))
    assert plan(releasing, o.NOW).delete_cluster == uid(1)
    suspended = o.after(gone(o.after(releasing)))
    assert (status_of(suspended).phase, status_of(suspended).restarts) == (Phase.SUSPENDED, 1)
    resumed = o.after(o.suspend(suspended, False), now=LATER)
    assert [manifest["kind"] for manifest in plan(resumed, LATER).apply] == KINDS
    again = fails(replace(resumed, nodes=()), 2)
    assert [each.number for each in status_of(again).attempts] == [1, 2]


def test_a_suspension_is_not_an_attempt() -> None:
    running = o.after(on_cluster(Observed(job()), 1, o.running()))
    stopped = o.after(replace(o.after(o.suspend(running)), ray=o.ended("STOPPED")))
    assert (status_of(stopped).attempts, status_of(stopped).restarts) == ([], 0)


def test_an_evicted_cluster_is_not_an_attempt() -> None:
    queued = job(scheduling={"queueName": "team-a"})
    running = o.after(on_cluster(Observed(queued), 1, o.running()))
    taken = o.after(replace(running, cluster=o.cluster(uid=uid(1), suspend=True), pods=(), ray=BOOM))
    assert status_of(taken).attempts == []
    assert reason(taken, C.CLUSTER_READY) == Reason.WAITING_FOR_QUEUE


def affinity(observed: Observed, group: str = "workerGroupSpecs") -> list[dict[str, Any]]:
    assert observed.job.spec
    spec = build_ray_cluster(observed.job, observed.job.spec)["spec"][group]
    pod = (spec[0] if isinstance(spec, list) else spec)["template"]["spec"]
    required = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[dict[str, Any]] = required.get("nodeSelectorTerms", [])
    return terms


AWAY_FROM_1 = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}


def test_later_attempts_exclude_the_node_at_fault() -> None:
    failed = fails(Observed(job(exclude=True)), 1, ECC)
    assert status_of(failed).attempts[0].node_at_fault == "node-1"
    assert "Node node-1 was at fault and is excluded: the program printed" in (status_of(failed).message or "")
    assert status_of(failed).network
    assert status_of(failed).network.excluded_nodes == ["node-1"]  # type: ignore[union-attr]
    for group in ("workerGroupSpecs", "headGroupSpec"):
        assert affinity(o.after(gone(failed)), group) == [{"matchFields": [AWAY_FROM_1]}]
    third = o.after(gone(fails(o.after(gone(failed)), 2)))
    assert affinity(third) == [{"matchFields": [AWAY_FROM_1]}]


def test_the_node_at_fault_is_excluded_after_a_suspension() -> None:
    failed = o.after(gone(fails(Observed(job(exclude=True)), 1, ECC)))
    resumed = o.suspend(o.after(o.suspend(failed)), False)
    assert status_of(resumed).network is None
    decided = o.after(replace(resumed, nodes=NODES), now=LATER)
    assert decided.job.status.network
    assert decided.job.status.network.excluded_nodes == ["node-1"]
    assert affinity(decided) == [{"matchFields": [AWAY_FROM_1]}]


def test_the_users_node_affinity_is_kept() -> None:
    own = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [own, own]}}
    (group,) = o.SPEC["cluster"]["workers"]
    workers = [{**group, "podTemplate": {"spec": {"affinity": {"nodeAffinity": required}}}}]
    asked = job(exclude=True, cluster={**o.SPEC["cluster"], "workers": workers})
    assert affinity(fails(Observed(asked), 1, ECC)) == [{**own, "matchFields": [AWAY_FROM_1]}] * 2


def test_without_exclude_faulty_nodes_the_node_is_only_named() -> None:
    failed = fails(Observed(job()), 1, ECC)
    assert "Node node-1 was at fault: the program printed" in (status_of(failed).message or "")
    assert affinity(failed) == []


def test_a_node_found_lost_during_the_release_is_excluded() -> None:
    failed = fails(Observed(job(exclude=True)), 1)
    assert (needs_faulty_node(failed), status_of(failed).attempts[0].node_at_fault) == (True, None)
    lost = (NODES[0], Node("node-1", conditions={"Ready": "Unknown"}), NODES[2])
    releasing = o.after(replace(failed, nodes=lost, cluster=o.cluster(uid=uid(1), deleting=True)))
    (attempt,) = status_of(releasing).attempts
    assert (attempt.node_at_fault, attempt.evidence, status_of(releasing).restarts) == ("node-1", "it is not Ready", 1)
    assert "kubectl delete node" in (status_of(releasing).message or "")
    assert not needs_faulty_node(releasing)
    assert affinity(o.after(gone(releasing))) == [{"matchFields": [AWAY_FROM_1]}]


@pytest.mark.parametrize("ray", [None, o.running(), Ray(unreachable="x"), o.ended("SUCCEEDED"), o.ended("STOPPED")])
def test_nodes_are_needed_after_a_failure_only(ray: Ray | None) -> None:
    running = o.after(on_cluster(Observed(job()), 1, o.running()))
    assert not needs_faulty_node(replace(running, ray=ray))
    assert needs_faulty_node(replace(running, ray=BOOM))
    assert needs_faulty_node(replace(running, ray=Ray()))


def test_the_list_of_attempts_is_bounded_and_keeps_faulty_nodes() -> None:
    (first,) = status_of(fails(Observed(job(exclude=True)), 1, ECC)).attempts
    attempts = [first]
    for number in range(2, 100):
        update = {"number": number, "ray_cluster_uid": uid(number), "node_at_fault": None}
        attempts = add_attempt(attempts, first.model_copy(update=update))
    assert len(attempts) == MAX_ATTEMPTS
    assert (attempts[0], attempts[-1].number) == (first, 99)


def test_the_message_of_an_attempt_is_truncated() -> None:
    failed = fails(Observed(job()), 1, o.ended("FAILED", "\n".join(["x" * 990, "ValueError: it was this"])))
    (attempt,) = status_of(failed).attempts
    assert len(attempt.message) == MAX_MESSAGE_LENGTH + 1
    assert attempt.message.startswith("…x")
    assert attempt.message.endswith("ValueError: it was this")


FIRST = Observed(job(1))
LIFE: list[tuple[str, int, Any]] = [
    ("made", 1, None), ("up", 1, Ray()), ("runs", 1, o.running()), ("failed", 1, BOOM), ("terminating", 1, BOOM),
    ("gone", 0, None), ("made", 2, None), ("runs", 2, o.running()),
]  # fmt: skip


@pytest.mark.parametrize("end", [BOOM, o.ended("SUCCEEDED", o.final_log())])
@pytest.mark.parametrize("missed", range(1 << len(LIFE)))
def test_a_crash_at_any_point_counts_no_attempt_twice(missed: int, end: Ray) -> None:
    """Each bit of `missed` is a status that is not written. The first failure is always written: otherwise the
    operator releases nothing and retries."""
    status = RLTrainingJobStatus(network=FIRST.job.status.network)
    for number, (what, attempt, ray) in enumerate([*LIFE, ("ends", 2, end), ("ends", 2, end)]):
        seen = replace(FIRST, job=replace(FIRST.job, status=status))
        seen = on_cluster(seen, attempt, ray, ready=what != "made") if attempt else seen
        decided = plan(seen, o.NOW)
        if attempt == 1:  # nothing is deleted before the attempt is written
            assert decided.delete_cluster is None or status.attempts
        written = what in ("terminating", "ends")
        if written or not missed >> number & 1:
            status = o.after(seen).job.status
    succeeded = end is not BOOM
    assert status.phase == (Phase.SUCCEEDED if succeeded else Phase.FAILED)
    assert [each.number for each in status.attempts] == [1] if succeeded else [1, 2]
    assert status.restarts == 1
    done = replace(FIRST, job=replace(FIRST.job, status=status))
    settled = o.after(done)
    assert plan(settled, o.NOW).status is None
    assert plan(settled, o.NOW).apply == ()
