"""spec.failurePolicy.onDrain: a job leaves a node that is drained, unless it has to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o
import pytest

from rlt_api.blocks.resources import Toleration
from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.conditions import Reason
from rlt_api.status.job_status import Phase
from rlt_core.fabric.nodes import Node, Taint, parse_nodes
from rlt_operator.cache.cache import Cache
from rlt_operator.conditions import is_true
from rlt_operator.diagnosis.disruption import REMOVAL_TAINTS, find_drain
from rlt_operator.observation import Observed, Ray
from rlt_operator.reconcile.plan import plan

READY = Node("node-1", conditions={"Ready": "True"})
CORDONED = replace(READY, cordoned=True, taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),))
EVERY_TAINT = Toleration(operator="Exists")


def job(node: Node = CORDONED, *, ray: Ray | None = None, tolerations: Any = (), **policy: Any) -> Observed:
    """A running job whose worker runs on the node."""
    head, worker, *others = o.pods()
    pods = (head, replace(worker, node=node.name, tolerations=tolerations), *others)
    fresh = Observed(o.job({**o.SPEC, "failurePolicy": policy}))
    started = o.after(replace(fresh, cluster=o.cluster(), pods=pods, ray=o.running(40)))
    return replace(started, pod_nodes=(node,), ray=ray or started.ray)


def test_the_request_to_stop_and_the_disruption_are_recorded_before_ray_gets_it() -> None:
    first = plan(job(), o.NOW)
    assert (first.stop, first.delete_cluster, first.requeue_after) == (None, None, 0)
    assert first.status
    assert first.status.disruption
    assert first.status.disruption.reason == "NodeCordoned"
    assert "node-1" in first.status.disruption.message
    assert plan(o.after(job()), o.NOW).stop == "sum-99999999"


@pytest.mark.parametrize("end", ["STOPPED", "FAILED"])
def test_the_stopped_program_ends_the_attempt_as_a_disruption(end: str) -> None:
    ended = o.after(replace(o.after(job(maxRestarts=0)), ray=o.ended(end, o.final_log(41))))
    (attempt,) = ended.job.status.attempts
    assert (attempt.reason, attempt.disruption, attempt.step) == (Reason.DISRUPTED, "NodeCordoned", 41)
    assert ended.job.status.disruptions == 1
    assert not is_true(ended.job.status, C.FAILED)
    released = plan(ended, o.NOW)
    assert released.delete_cluster == o.CLUSTER_UID


def test_an_uncordoned_node_does_not_end_a_drain_that_is_recorded() -> None:
    stopping = replace(o.after(job()), pod_nodes=(READY,))
    assert plan(stopping, o.NOW).stop == "sum-99999999"
    assert o.after(replace(stopping, ray=o.ended("STOPPED"))).job.status.disruptions == 1


def test_a_program_that_succeeds_meanwhile_succeeds() -> None:
    done = o.after(replace(o.after(job()), ray=o.ended("SUCCEEDED", o.final_log())))
    assert done.job.status.phase == Phase.SUCCEEDED


def test_a_ready_cluster_without_a_program_is_released_at_once() -> None:
    idle = replace(o.READY, pods=tuple(replace(pod, node="node-1") for pod in o.pods()), pod_nodes=(CORDONED,))
    ended = o.after(idle)
    assert [each.disruption for each in ended.job.status.attempts] == ["NodeCordoned"]
    assert plan(ended, o.NOW).delete_cluster == o.CLUSTER_UID


@pytest.mark.parametrize("waiting", [
    job(READY),
    job(onDrain="Wait"),
    job(maxDisruptions=0),
    job(tolerations=(EVERY_TAINT,)),
    job(replace(READY, name="node-1", taints=(Taint("example.com/gpu", "", "NoSchedule"),))),
    replace(job(), cluster=o.cluster(suspend=True)),
])  # fmt: skip
def test_a_job_waits(waiting: Observed) -> None:
    planned = plan(waiting, o.NOW)
    assert planned.stop is None
    assert (
        planned.status is None or planned.status.current_attempt is None or planned.status.current_attempt.stop is None
    )


@pytest.mark.parametrize("key", sorted(REMOVAL_TAINTS))
def test_an_announced_removal_counts_as_a_drain(key: str) -> None:
    worker = job().pods[1]
    announced = replace(READY, taints=(Taint(key, "", "NoSchedule"),))
    found = find_drain([worker], [announced])
    assert found
    assert found.reason == key
    assert find_drain([replace(worker, ready=False)], [announced]) is None
    assert find_drain([replace(worker, tolerations=(Toleration(key=key, operator="Exists"),))], [announced]) is None


def test_a_cordoned_node_wakes_the_jobs_on_it() -> None:
    woken: list[tuple[str, str]] = []
    cache = Cache(woken.append)
    labels = {"rlt.dev/job-name": "sum"}
    pod = {"name": "a", "namespace": "demo", "uid": "1", "resourceVersion": "1", "labels": labels}
    cache.pods.put({"kind": "Pod", "metadata": pod, "spec": {"nodeName": "node-1"}})
    for name, unschedulable in (("node-2", True), ("node-1", False), ("node-1", True)):
        version = f"{len(woken) + unschedulable + 2}"
        node = {"kind": "Node", "metadata": {"name": name, "resourceVersion": version}}
        manifest = {**node, "spec": {"unschedulable": unschedulable}}
        assert cache.nodes.put(manifest)
        cache._wake_for_node(("", name), manifest)
    assert parse_nodes([manifest])[0].cordoned
    assert woken == [cache.pods.get_index(("demo", "a"))]


def separate(drained: str, **changes: Any) -> Observed:
    """A running job with one pod that trains and one that generates. The group with this name is on a cordoned node."""
    spec = {**o.SPEC, "rollout": {"mode": "separate", "workerGroup": "engines"}}
    group = {**o.SPEC["cluster"]["workers"][0], "replicas": 1}
    workers = [{**group, "name": "train"}, {**group, "name": "engines", **changes}]
    spec["cluster"] = {**o.SPEC["cluster"], "workers": workers}
    head, *others = o.pods()
    named = [
        replace(pod, group=name, node=CORDONED.name if name == drained else "node-2")
        for pod, name in zip(others, ("train", "engines"), strict=True)
    ]
    fresh = replace(Observed(o.job(spec)), cluster=o.cluster(), pods=(head, *named), ray=o.running(40))
    return replace(o.after(fresh), pod_nodes=(CORDONED,))


@pytest.mark.parametrize(("group", "ends"), [("engines", False), ("train", True)])
def test_the_training_stays_on_a_drained_node_with_rollout_pods_alone(group: str, *, ends: bool) -> None:
    """The drain evicts them, and KubeRay creates others."""
    planned = plan(separate(group), o.NOW)
    assert bool(planned.status and planned.status.disruption) == ends


@pytest.mark.parametrize(("replicas", "new", "ends"), [
    (1, {}, True),
    (2, None, False),  # KubeRay replaces the evicted pod
    (2, {"ready": False, "phase": "Pending"}, False),
    (2, {"ready": False, "phase": "Pending", "unschedulable": "0/2 nodes are available"}, True),
    (2, {"ready": True}, False),
], ids=["as many as replicas", "missing", "starting", "unschedulable", "ready"])  # fmt: skip
def test_the_training_leaves_a_drained_node_if_the_budget_of_the_minimum_blocks_the_drain(
    replicas: int, new: dict[str, Any] | None, *, ends: bool
) -> None:
    observed = separate("engines", replicas=replicas, minReplicas=1)
    engine = observed.pods[-1]
    another = replace(engine, name="sum-engines-worker-d", uid="d", node="node-2", **(new or {}))
    pods = (*observed.pods, another) if new else observed.pods
    planned = plan(replace(observed, pods=pods), o.NOW)
    assert bool(planned.status and planned.status.current_attempt and planned.status.current_attempt.stop) == ends
