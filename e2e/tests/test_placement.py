"""Large jobs on 64 fake nodes of 8 GPUs in 8 racks: the placement of their pods, and the fabric of the nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.fake_nodes import RACK, TOLERATION, build_racks, fake_nodes
from rlt_e2e.jobs import Job, apply_job, await_condition, await_job, build_command_job, get_condition

pytestmark = pytest.mark.cluster

RACKS = 8
NODES = 8
GPUS = 8
SCHEDULING_TIMEOUT_S = 300.0
"""Timeout for KubeRay and the scheduler to place the pods of a large job on a busy machine."""
INFINIBAND = {"feature.node.kubernetes.io/pci-0207_15b3.present": "true"}
"""NFD's label of nodes with an InfiniBand adapter of NVIDIA."""
HCA = "rdma/hca_shared_devices_a"
GPU = {"resourceName": "nvidia.com/gpu", "count": GPUS}


@pytest.fixture(scope="module", autouse=True)
def _racks(cluster: Cluster) -> Iterator[None]:
    if not cluster.layout:
        pytest.skip("fake nodes need the embedded cluster")
    with fake_nodes(cluster, build_racks(RACKS, nodes=NODES, gpus=GPUS)):
        yield


def build_job(workers: int, *, mode: str, **fields: Any) -> Job:
    """Build a job on whole nodes with topology `mode`. Its head is also on a fake node."""
    resources = {"cpu": "100", "memory": "1Ti"}
    group = {"replicas": workers, "resources": resources, "accelerator": GPU, "tolerations": [TOLERATION], **fields}
    head = {"resources": {"cpu": "1", "memory": "2Gi"}, "tolerations": [TOLERATION], "nodeSelector": {RACK: "rack-0"}}
    job = build_command_job(f"{mode}-{workers}", "true", head=head, workers=[group])
    job["spec"]["scheduling"] = {"topology": {"key": RACK, "mode": mode}}
    return job


def place(cluster: Cluster, namespace: str, job: Job) -> Counter[str]:
    """Apply the job and return rack -> workers on it when all run. Asserts that each is on its own node."""
    name = apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, name, "ClusterReady", timeout_s=SCHEDULING_TIMEOUT_S)
    selector = f"ray.io/cluster={name},ray.io/node-type=worker"
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    (group,) = job["spec"]["cluster"]["workers"]
    assert len(nodes) == group["replicas"]
    return Counter(node.rpartition("-")[0] for node in nodes)


def test_job_that_fits_a_rack_is_placed_in_one(cluster: Cluster, namespace: str) -> None:
    assert list(place(cluster, namespace, build_job(NODES, mode="required")).values()) == [NODES]


def test_job_that_prefers_a_rack_is_placed_in_several(cluster: Cluster, namespace: str) -> None:
    assert place(cluster, namespace, build_job(32, mode="preferred")).total() == 32


def test_job_is_placed_in_the_racks_of_its_affinity(cluster: Cluster, namespace: str) -> None:
    wanted = [f"rack-{number}" for number in (1, 3, 5, 7)]
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": wanted}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    job = build_job(32, mode="preferred", podTemplate={"spec": {"affinity": affinity}})
    assert place(cluster, namespace, job) == dict.fromkeys(wanted, NODES)


def test_job_that_does_not_fit_a_rack_is_pending_with_the_reason(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, build_job(NODES + 1, mode="required"))
    reason = "didn't match pod affinity rules"
    pending = await_job(
        cluster,
        namespace,
        name,
        lambda job: reason in get_condition(job, "ClusterReady")["message"],
        what="the scheduler's message",
        timeout_s=SCHEDULING_TIMEOUT_S,
    )
    assert reason in pending["status"]["message"]


def test_gang_that_does_not_fit_is_not_scheduled(cluster: Cluster, namespace: str) -> None:
    job = build_job(RACKS * NODES + 1, mode="preferred")
    job["spec"]["scheduling"] |= {"schedulerName": "default-scheduler", "gang": True}
    name = apply_job(cluster, namespace, job)
    await_job(
        cluster,
        namespace,
        name,
        lambda job: get_condition(job, "ClusterReady")["reason"] == "Unschedulable",
        what="the scheduler's message",
        timeout_s=SCHEDULING_TIMEOUT_S,
    )
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "json"))
    assert [pod["metadata"]["name"] for pod in pods["items"] if "nodeName" in pod["spec"]] == []


def test_different_nodes_get_the_generic_profile_with_the_reason(cluster: Cluster, namespace: str) -> None:
    other = [f"rack-7-{number}" for number in range(NODES)]
    try:
        for node in other:
            cluster.label_node(node, INFINIBAND)
            cluster.set_extended_resource(node, HCA, 8)
        name = apply_job(cluster, namespace, build_job(2, mode="preferred"))
        decided = await_job(
            cluster,
            namespace,
            name,
            lambda job: "network" in job["status"],
            what="status.network",
            timeout_s=SCHEDULING_TIMEOUT_S,
        )
    finally:
        for node in other:
            cluster.label_node(node, dict.fromkeys(INFINIBAND))
            cluster.set_extended_resource(node, HCA, 0)
    network = decided["status"]["network"]
    found = get_condition(decided, "FabricVerified")
    assert (network["profile"], network["agree"], network["candidates"]) == ("generic", False, RACKS * NODES)
    assert (found["status"], found["reason"]) == ("False", "NodesDisagree")
    assert "infiniband" in found["message"]
