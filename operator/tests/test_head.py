"""The head of a job is the pod that KubeRay names, not another pod with the labels and the owner of one."""

from __future__ import annotations

import copy
from typing import Any

import observed as o
import pytest
from reconcile_loop import KEY, RAY_CLUSTER, FakeApi, Loop

from rlt_core import names
from rlt_core.job import Manifest
from rlt_operator.observation import Observed
from rlt_operator.reconcile.observe import choose_target, observe
from rlt_operator.reconcile.plan import plan


def pod(name: str, cluster_uid: str, *, node_type: str = "head", **metadata: Any) -> Manifest:
    labels = {names.JOB_LABEL: "sum", "ray.io/node-type": node_type}
    owner = {"kind": "RayCluster", "name": "sum", "uid": cluster_uid, "controller": True}
    return {
        "metadata": {
            "namespace": "demo",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "50",
            "labels": labels,
            "ownerReferences": [owner],
            **metadata,
        },
        "status": {"phase": "Running", "podIP": f"10.0.0.{len(name)}"},
    }


@pytest.fixture
async def loop() -> Loop:
    """A job whose RayCluster exists."""
    loop = Loop(FakeApi())
    await loop.run()
    owner = {"kind": "RLTrainingJob", "name": "sum", "uid": o.UID, "controller": True}
    loop.api.objects[RAY_CLUSTER]["metadata"]["ownerReferences"] = [owner]
    return loop


async def see(loop: Loop, *pods: Manifest, head: str | None) -> Observed:
    cluster = copy.deepcopy(loop.api.objects[RAY_CLUSTER])
    cluster["metadata"]["resourceVersion"] = str(int(cluster["metadata"]["resourceVersion"]) + 1)
    cluster["status"] = {"state": "ready", **({"head": {"podName": head}} if head else {})}
    loop.api.objects[RAY_CLUSTER] = cluster
    loop.deliver()
    for each in pods:
        loop.cache.pods.put(each)
    observed = await observe(loop.sources, KEY)
    await loop.sources.poller.close()
    assert observed
    return observed


async def test_a_second_pod_with_the_labels_of_a_head_changes_nothing(loop: Loop) -> None:
    uid = loop.api.objects[RAY_CLUSTER]["metadata"]["uid"]
    head = pod("sum-head-x", uid)
    alone = await see(loop, head, head="sum-head-x")
    both = await see(loop, pod("aaa", uid), head="sum-head-x")
    target = choose_target(both)
    assert target
    assert target.head.pod == "sum-head-x"
    assert target == choose_target(alone)
    assert both.pods == alone.pods
    assert plan(both, o.NOW) == plan(alone, o.NOW)


async def test_before_the_status_names_the_head_its_label_counts(loop: Loop) -> None:
    uid = loop.api.objects[RAY_CLUSTER]["metadata"]["uid"]
    target = choose_target(await see(loop, pod("sum-head-x", uid), head=None))
    assert target
    assert target.head.pod == "sum-head-x"


async def test_a_pod_that_the_status_names_without_the_label_of_a_head_gets_no_requests(loop: Loop) -> None:
    uid = loop.api.objects[RAY_CLUSTER]["metadata"]["uid"]
    assert choose_target(await see(loop, pod("w", uid, node_type="worker"), head="w")) is None


async def test_a_terminating_head_still_shows_its_disruption(loop: Loop) -> None:
    uid = loop.api.objects[RAY_CLUSTER]["metadata"]["uid"]
    earlier = pod("sum-head-x", uid, deletionTimestamp="2026-01-02T03:04:05Z")
    observed = await see(loop, earlier, pod("sum-head-y", uid), head="sum-head-y")
    assert {each.name for each in observed.pods} == {"sum-head-x", "sum-head-y"}
    assert observed.head
    assert observed.head.name == "sum-head-y"
