"""A disruption restarts the job by its own budget, also if the disrupted pod is gone when the attempt ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase, RLTrainingJobStatus
from rlt_core.fabric.nodes import Node, Taint
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.diagnosis.disruption import NODE_TAINTS, find_disruption
from rlt_operator.lifecycle.restarts import LOST_NODE_CAUSE_S, STOP_CAUSE_S
from rlt_operator.manifests import parse_pod
from rlt_operator.observation import Container, Observed, Pod, Ray, Termination
from rlt_operator.reconcile.plan import plan
from rlt_operator.verdict import WAITING_INTERVAL_S

RUNNING = Container("ray-worker", running=True)
CRASHED = Container("ray-worker", termination=Termination("Error", 1, "boom"))
WAITED = Container("wait-gcs-ready", termination=Termination("Completed", 0, ""), is_init=True)
RESTARTED = replace(CRASHED, running=True)


def pod(**changes: Any) -> Pod:
    worker = replace(o.pods()[1], node="node-1", containers=(RUNNING,))
    return replace(worker, **changes)


EVICTED = pod(deleting=True, disruption="EvictionByEvictionAPI")
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
EMPTY_DIR = 'Usage of EmptyDir volume "shared-memory" exceeds the limit "1Gi". '
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."


@pytest.mark.parametrize(("changed", "reason"), [
    ({"deleting": True, "disruption": "PreemptionByScheduler"}, "PreemptionByScheduler"),
    ({"phase": "Failed", "disruption": "TerminationByKubelet", "reason": "Evicted"}, "TerminationByKubelet"),
    ({"phase": "Failed", "reason": "Evicted", "message": LOW}, "Evicted"),
    ({"phase": "Failed", "reason": "Terminated", "message": SHUTDOWN}, "Terminated"),
    ({"phase": "Failed", "reason": "NodeShutdown"}, "NodeShutdown"),
    ({"phase": "Failed", "reason": "Preempting"}, "Preempting"),
    ({"deleting": True}, "PodDeleted"),
    ({"deleting": True, "containers": (RESTARTED,)}, "PodDeleted"),
    ({"deleting": True, "containers": (WAITED, RUNNING)}, "PodDeleted"),
    # not a disruption
    ({}, None),
    ({"disruption": "PreemptionByScheduler"}, None),  # Kubernetes resets the condition, or deletes the pod next
    ({"deleting": True, "containers": (CRASHED,)}, None),  # KubeRay replaces the pod
    ({"deleting": True, "phase": "Failed"}, None),
    ({"phase": "Failed", "reason": "Terminated", "message": "exited"}, None),
    ({"phase": "Failed", "reason": "Evicted", "message": EMPTY_DIR}, None),
    ({"phase": "Failed", "disruption": "TerminationByKubelet", "reason": "Evicted",
      "message": 'Container ray-worker exceeded its local ephemeral storage limit "1Gi". '}, None),
])  # fmt: skip
def test_a_disruption_is_recognized_by_the_pod(changed: dict[str, Any], reason: str | None) -> None:
    found = find_disruption([pod(), pod(name="sum-b", **changed)])
    assert (found.reason if found else None) == reason


def node(ready: str = "True", taint: str | None = None, name: str = "node-1") -> Node:
    taints = (Taint(taint, "", "NoSchedule"),) if taint else ()
    return Node(name, conditions={"Ready": ready}, taints=taints)


@pytest.mark.parametrize(("node", "reason"), [
    (node(), None),
    (node(name="node-2"), "NodeDeleted"),
    (node(ready="Unknown"), "NodeNotReady"),
    (node(taint="node.kubernetes.io/unschedulable"), None),
    *((node(taint=taint), taint) for taint in sorted(NODE_TAINTS)),
])  # fmt: skip
def test_a_disruption_is_recognized_by_the_node(node: Node, reason: str | None) -> None:
    found = find_disruption([pod()], (node,))
    assert (found.reason if found else None) == reason


def test_the_condition_of_the_pod_is_parsed() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    running = {"name": "ray-worker", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
    waited = {"name": "wait-gcs-ready", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    status = {"conditions": [condition], "initContainerStatuses": [waited], "containerStatuses": [running]}
    parsed = parse_pod({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "x"}, "status": status})
    assert parsed.disruption == "DeletionByTaintManager"
    assert [(each.name, each.running, each.is_init) for each in parsed.containers] == [
        ("wait-gcs-ready", False, True),
        ("ray-worker", True, False),
    ]


def job(**policy: Any) -> Observed:
    fresh = Observed(o.job({**o.SPEC, "failurePolicy": policy}))
    return o.after(replace(fresh, cluster=o.cluster(), pods=o.pods(), ray=o.running(40)))


def with_pods(observed: Observed, *pods: Pod) -> Observed:
    return replace(observed, pods=pods)


def status_of(observed: Observed) -> RLTrainingJobStatus:
    return observed.job.status


GONE = (o.pods()[0], replace(o.pods()[1], name="sum-workers-worker-new", uid="new", ready=False))


@pytest.mark.parametrize("ray", [o.ended("FAILED", "node died"), o.ended("STOPPED"), Ray()])
def test_a_disrupted_attempt_restarts_without_max_restarts(ray: Ray) -> None:
    """The program fails, its preStop hook stops it, or the head is lost. The pod is gone by then."""
    disrupted = o.after(with_pods(job(), *GONE, EVICTED))
    recorded = status_of(disrupted).disruption
    assert recorded
    assert (recorded.reason, recorded.ray_cluster_uid) == ("EvictionByEvictionAPI", o.CLUSTER_UID)
    assert status_of(disrupted).phase == Phase.RUNNING
    ended = o.after(with_pods(replace(disrupted, ray=ray), *GONE))
    status = status_of(ended)
    (attempt,) = status.attempts
    assert (status.phase, status.restarts, status.disruptions) == (Phase.PENDING, 0, 1)
    assert (attempt.number, attempt.reason, attempt.disruption) == (1, Reason.DISRUPTED, "EvictionByEvictionAPI")
    assert status.message == (
        "Attempt 1 was disrupted: Pod sum-workers-worker-b on node node-1 was disrupted: EvictionByEvictionAPI. "
        "The next attempt starts from the beginning."
    )
    assert plan(ended, o.NOW).delete_cluster == o.CLUSTER_UID
    released = o.after(replace(ended, cluster=None, pods=(), ray=None))
    assert [each["kind"] for each in plan(released, o.NOW).apply][-1] == "RayCluster"
    assert (status_of(released).disruptions, status_of(released).disruption) == (1, None)


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        (pod(), "PodDeleted"),
        (pod(deleting=True), "PodDeleted"),
        (pod(containers=(CRASHED,)), None),  # KubeRay deletes it
        (replace(EVICTED, containers=(CRASHED,)), None),  # it ended while Kueue suspended the RayCluster
        (pod(phase="Failed"), None),
        (pod(cluster_uid="earlier"), None),
    ],
)
def test_a_pod_that_was_deleted_without_a_grace_period_is_a_disruption(removed: Pod, reason: str | None) -> None:
    """It no longer exists when the operator observes the deletion. Its preStop hook has stopped the Ray job."""
    gone = replace(with_pods(job(maxRestarts=1), *GONE), removed_pods=(removed,))
    disruption = status_of(o.after(gone)).disruption
    assert (disruption.reason if disruption else None) == reason
    if disruption:
        assert disruption.message == "Pod sum-workers-worker-b on node node-1 was disrupted: PodDeleted"


def test_a_disruption_that_is_observed_with_the_end_counts_too() -> None:
    ended = o.after(with_pods(replace(job(), ray=o.ended("FAILED", "x")), *GONE, EVICTED))
    assert [each.disruption for each in status_of(ended).attempts] == ["EvictionByEvictionAPI"]


def test_a_lost_node_is_a_disruption() -> None:
    pods = tuple(replace(each, node="node-1") for each in o.pods())
    nodes = (Node("node-1", conditions={"Ready": "Unknown"}),)
    ended = o.after(replace(job(), pods=pods, nodes=nodes, ray=o.ended("FAILED", "x")))
    assert [each.disruption for each in status_of(ended).attempts] == ["NodeNotReady"]


def test_disruptions_and_failures_have_their_own_budgets() -> None:
    observed = job(maxRestarts=1, maxDisruptions=2)
    disrupted = 0
    failed = 0
    for number, is_disrupted in enumerate([True, False, True], start=1):
        cluster = o.cluster(uid=f"cluster-{number}")
        pods = [replace(each, cluster_uid=cluster.uid) for each in (*GONE, EVICTED)][: 3 if is_disrupted else 2]
        running = o.after(replace(observed, cluster=cluster, pods=tuple(pods), ray=o.running()))
        ended = o.after(replace(running, ray=o.ended("FAILED", "boom")))
        disrupted += is_disrupted
        failed += not is_disrupted
        status = status_of(ended)
        assert (status.disruptions or 0, status.restarts or 0, status.phase) == (disrupted, failed, Phase.PENDING)
        observed = o.after(replace(ended, cluster=None, pods=(), ray=None), now=o.NOW + timedelta(minutes=5))
    assert [each.number for each in status_of(observed).attempts] == [1, 2, 3]
    assert "Attempt 2 failed, restart 1 of 1: boom." in _message_of_attempt(2, observed)
    last = o.after(replace(observed, cluster=o.cluster(uid="last"), pods=o.pods(), ray=o.running()))
    evicted = replace(EVICTED, cluster_uid="last")
    final = o.after(replace(last, pods=(evicted,), ray=o.ended("FAILED", "x")))
    failed_condition = find_condition(status_of(final), C.FAILED)
    assert failed_condition
    assert (failed_condition.status, failed_condition.reason) == ("True", Reason.DISRUPTED)
    assert "spec.failurePolicy.maxDisruptions is 2." in failed_condition.message
    assert is_true(status_of(final), C.STALLED)


def _message_of_attempt(number: int, observed: Observed) -> str:
    (attempt,) = (each for each in status_of(observed).attempts if each.number == number)
    return f"Attempt {attempt.number} failed, restart 1 of 1: {attempt.message}."


def test_max_disruptions_0_fails_the_job() -> None:
    ended = o.after(with_pods(replace(job(maxDisruptions=0), ray=o.ended("FAILED", "x")), *GONE, EVICTED))
    assert (status_of(ended).phase, status_of(ended).attempts) == (Phase.FAILED, [])


def test_pods_that_end_with_a_suspended_cluster_are_not_disrupted() -> None:
    """Kueue suspends the RayCluster. A later failure on this cluster is not a disruption."""
    taken = o.after(replace(job(), cluster=o.cluster(suspend=True), pods=(EVICTED,)))
    assert status_of(taken).disruption is None


def test_a_disruption_of_an_earlier_cluster_is_forgotten() -> None:
    disrupted = o.after(with_pods(job(), *GONE, EVICTED))
    other = replace(disrupted, cluster=o.cluster(uid="other"), pods=(), ray=None)
    assert status_of(o.after(other)).disruption is None


def stopped(seconds_ago: float) -> Ray:
    ray = o.ended("STOPPED")
    assert ray.job
    return replace(ray, job=replace(ray.job, end_ms=round((o.NOW.timestamp() - seconds_ago) * 1000)))


def test_the_cause_of_a_stopped_program_is_awaited() -> None:
    """The hook of a pod stops the program before the operator observes that the pod is deleted."""
    waiting = o.after(replace(job(), ray=stopped(1)))
    assert (status_of(waiting).phase, is_true(status_of(waiting), C.RUNNING)) == (Phase.RUNNING, True)
    assert plan(waiting, o.NOW).requeue_after == WAITING_INTERVAL_S
    disrupted = o.after(with_pods(waiting, *GONE, EVICTED))
    assert [each.disruption for each in status_of(disrupted).attempts] == ["EvictionByEvictionAPI"]
    for ended in (STOP_CAUSE_S, -3600):  # an hour ahead: the clock of the head is wrong
        final = o.after(replace(waiting, ray=stopped(ended)))
        condition = find_condition(status_of(final), C.FAILED)
        assert condition
        assert (condition.status, condition.reason) == ("True", Reason.STOPPED)


@pytest.mark.parametrize(
    "message",
    [
        "ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: 1",
        "rlt-trainer: error: Pod a lost its connection to pod b: Connection timed out.",
    ],
)
def test_the_loss_of_a_node_is_awaited_that_the_program_reports_first(message: str) -> None:
    """Ray and the ranks detect a lost machine earlier than Kubernetes."""
    pods = tuple(replace(each, node="node-1") for each in o.pods())
    lost = o.ended("FAILED", message)
    waiting = o.after(replace(job(), pods=pods, nodes=(node(),), ray=lost), now=o.NOW + timedelta(seconds=40))
    assert (status_of(waiting).phase, status_of(waiting).attempts) == (Phase.RUNNING, [])
    assert (status_of(waiting).message or "").endswith(message.partition("error: ")[2] or message)
    late = o.NOW + timedelta(seconds=LOST_NODE_CAUSE_S)
    restarted = o.after(replace(waiting, nodes=(node(ready="Unknown"),)), now=late)
    assert [each.disruption for each in status_of(restarted).attempts] == ["NodeNotReady"]
    assert status_of(o.after(waiting, now=late)).phase == Phase.FAILED  # the raylet has crashed on a healthy node


def test_the_message_has_the_nodes_of_the_pods_that_lost_their_connection() -> None:
    pods = tuple(replace(each, node=f"node-{number}") for number, each in enumerate(o.pods()))
    _, one, other = pods
    lost = f"Pod {one.name} lost its connection to pod {other.name}: Connection timed out."
    waiting = o.after(replace(job(), pods=pods, ray=o.ended("FAILED", lost)))
    assert status_of(waiting).message == (
        f"The Ray job has ended. Waiting for a disruption that explains it: {lost} Pod {one.name} is on node node-1. "
        f"Pod {other.name} is on node node-2."
    )


def test_a_program_that_was_stopped_with_a_crashed_container_has_failed() -> None:
    """The kubelet runs the preStop hook too when a liveness probe fails."""
    crashed = replace(o.pods()[1], containers=(replace(RESTARTED, restarts=1),))
    ended = o.after(with_pods(replace(job(maxRestarts=1), ray=o.ended("STOPPED")), o.pods()[0], crashed))
    (attempt,) = status_of(ended).attempts
    assert (attempt.reason, attempt.disruption, status_of(ended).phase) == (Reason.PROGRAM_FAILED, None, Phase.PENDING)


TRAIN, ENGINES = (
    {"name": name, "replicas": count, "resources": {"cpu": "1", "memory": "4Gi"}}
    for name, count in (("train", 1), ("engines", 2))
)
SEPARATE: dict[str, Any] = {
    **o.SPEC,
    "rollout": {"mode": "separate", "workerGroup": "engines"},
    "cluster": {**o.SPEC["cluster"], "workers": [TRAIN, ENGINES]},
    "failurePolicy": {"maxRestarts": 1},
}
HEAD = o.pods()[0]
TRAINER = pod(name="sum-train-worker-a", group="train", uid="a", ready=True)
ENGINE = pod(name="sum-engines-worker-b", group="engines", uid="b", ready=True)
OTHER_ENGINE = replace(ENGINE, name="sum-engines-worker-c", uid="c")
LOST_ENGINE = replace(OTHER_ENGINE, deleting=True)
NEW_ENGINE = replace(OTHER_ENGINE, name="sum-engines-worker-d", uid="d", ready=False)
BESIDE = (HEAD, TRAINER, ENGINE)


def separate() -> Observed:
    pods = (*BESIDE, OTHER_ENGINE)
    return o.after(replace(Observed(o.job(SEPARATE)), cluster=o.cluster(), pods=pods, ray=o.running(40)))


def test_a_lost_rollout_pod_explains_the_end_of_the_program_until_its_group_is_complete() -> None:
    lost = o.after(with_pods(separate(), *BESIDE, LOST_ENGINE))
    disruption = status_of(lost).disruption
    assert disruption
    assert (disruption.reason, disruption.worker_group) == ("PodDeleted", "engines")
    assert (status_of(lost).phase, status_of(lost).attempts) == (Phase.RUNNING, [])

    starting = with_pods(lost, *BESIDE, NEW_ENGINE)
    assert status_of(o.after(starting)).disruption == disruption
    ended = o.after(replace(starting, ray=o.ended("FAILED", "no engine")))
    assert [each.disruption for each in status_of(ended).attempts] == ["PodDeleted"]

    complete = replace(with_pods(lost, *BESIDE, replace(NEW_ENGINE, ready=True)), removed_pods=(OTHER_ENGINE,))
    assert status_of(o.after(complete)).disruption is None
    failed = o.after(replace(o.after(complete), ray=o.ended("FAILED", "boom")))
    assert [(each.reason, each.disruption) for each in status_of(failed).attempts] == [(Reason.PROGRAM_FAILED, None)]


def test_a_pod_that_trains_has_precedence_over_a_rollout_pod() -> None:
    lost = o.after(with_pods(separate(), *BESIDE, LOST_ENGINE))
    evicted = replace(TRAINER, deleting=True, disruption="EvictionByEvictionAPI")
    both = o.after(with_pods(lost, HEAD, evicted, ENGINE, LOST_ENGINE))
    disruption = status_of(both).disruption
    assert disruption
    assert (disruption.reason, disruption.worker_group) == ("EvictionByEvictionAPI", None)
    complete = o.after(with_pods(both, *BESIDE, OTHER_ENGINE))
    assert status_of(complete).disruption == disruption


def test_each_pod_of_a_program_that_cannot_replace_it_is_a_disruption() -> None:
    spec = {**SEPARATE, "framework": {"type": "command", "command": ["true"]}}
    del spec["model"], spec["data"], spec["training"], spec["rollout"]
    running = o.after(replace(separate(), job=o.job(spec)))
    lost = o.after(with_pods(running, *BESIDE, LOST_ENGINE))
    disruption = status_of(lost).disruption
    assert disruption
    assert disruption.worker_group is None
    assert status_of(o.after(with_pods(lost, *BESIDE, OTHER_ENGINE))).disruption == disruption


def with_minimum(minimum: int, replicas: int = 3, **policy: Any) -> Observed:
    """A running job with two of the pods that generate. A further one has not started yet."""
    group = {**ENGINES, "replicas": replicas, "minReplicas": minimum}
    cluster = {**SEPARATE["cluster"], "workers": [TRAIN, group]}
    fresh = Observed(o.job({**SEPARATE, "cluster": cluster, "failurePolicy": policy}))
    pods = (*BESIDE, OTHER_ENGINE, NEW_ENGINE)
    return o.after(replace(fresh, cluster=o.cluster(), pods=pods, ray=o.running(40)))


NEW_ENGINE_STARTS = replace(NEW_ENGINE, phase="Pending")


def test_the_program_starts_with_the_minimum_of_its_rollout_pods() -> None:
    fresh = replace(with_minimum(1).job, status=RLTrainingJobStatus())
    ready = o.recorded(replace(o.READY, job=o.decided(fresh), pods=(HEAD, TRAINER, ENGINE)))
    planned = plan(ready, o.NOW)
    assert planned.submit
    condition = find_condition(status_of(o.after(ready)), C.CLUSTER_READY)
    assert condition
    assert condition.message == "The head and 2 of 4 workers are ready."
    for pods in ((HEAD, TRAINER), (HEAD, ENGINE, OTHER_ENGINE)):
        assert plan(replace(ready, pods=pods), o.NOW).submit is None, "a group lacks pods"


def test_a_lost_rollout_pod_above_the_minimum_explains_the_end_of_the_program_until_it_has_terminated() -> None:
    lost = o.after(with_pods(with_minimum(1, maxRestarts=1), *BESIDE, LOST_ENGINE, NEW_ENGINE_STARTS))
    assert status_of(lost).phase == Phase.RUNNING
    disruption = status_of(lost).disruption
    assert disruption
    assert disruption.worker_group == "engines"
    assert plan(lost, o.NOW + timedelta(seconds=9)).stop is None
    assert status_of(o.after(lost)).disruption == disruption
    ended = o.after(replace(lost, ray=o.ended("FAILED", "no engine")))
    assert [each.disruption for each in status_of(ended).attempts] == ["PodDeleted"]

    gone = o.after(replace(with_pods(lost, *BESIDE, NEW_ENGINE_STARTS), removed_pods=(LOST_ENGINE,)))
    assert status_of(gone).disruption is None
    failed = o.after(replace(gone, ray=o.ended("FAILED", "boom")))
    assert [each.disruption for each in status_of(failed).attempts] == [None]


@pytest.mark.parametrize("removed", [False, True])
def test_a_lost_rollout_pod_below_the_minimum_ends_the_attempt_after_the_program_has_saved(*, removed: bool) -> None:
    running = with_minimum(2)
    left = with_pods(running, *BESIDE, NEW_ENGINE_STARTS, *(() if removed else (LOST_ENGINE,)))
    lost = o.after(replace(left, removed_pods=(OTHER_ENGINE,) if removed else ()))
    disruption = status_of(lost).disruption
    assert disruption
    assert (disruption.reason, disruption.worker_group) == ("PodDeleted", None)
    assert disruption.message == (
        "Pod sum-engines-worker-c on node node-1 was disrupted: PodDeleted: 1 of 3 pods of worker group engines run, "
        "and minReplicas is 2"
    )
    assert plan(lost, o.NOW).stop == "sum-99999999"

    replaced = with_pods(lost, *BESIDE, replace(NEW_ENGINE, ready=True))
    assert plan(replaced, o.NOW).stop == "sum-99999999", "the program has the request"
    (attempt,) = status_of(o.after(replace(replaced, ray=o.ended("STOPPED", o.final_log(41))))).attempts
    assert (attempt.reason, attempt.disruption, attempt.step) == (Reason.DISRUPTED, "PodDeleted", 41)


@pytest.mark.parametrize("observed", [
    with_pods(with_minimum(2), *BESIDE, LOST_ENGINE, NEW_ENGINE),
    with_pods(with_minimum(2), *BESIDE, replace(OTHER_ENGINE, ready=False)),
    with_pods(with_minimum(2), *BESIDE, replace(OTHER_ENGINE, ready=False, containers=(CRASHED,))),
    with_pods(with_minimum(2, maxDisruptions=0), *BESIDE, LOST_ENGINE),
    with_pods(separate(), HEAD, TRAINER, LOST_ENGINE),
], ids=["a third pod runs", "a slow probe", "a container ended", "no further attempt", "no minimum"])  # fmt: skip
def test_the_training_continues(observed: Observed) -> None:
    assert plan(o.after(observed), o.NOW).stop is None


def test_a_rollout_pod_that_is_lost_before_the_program_runs_ends_no_attempt() -> None:
    running = with_minimum(2)
    fresh = replace(running.job, status=RLTrainingJobStatus())
    lost = replace(o.READY, job=o.decided(fresh), pods=(*BESIDE, LOST_ENGINE))
    assert status_of(o.after(o.recorded(lost))).attempts == []
