"""Large jobs on 64 nodes of 8 GPUs in 8 racks, played by KWOK: where the real scheduler puts their pods, and what the
operator finds out about so many nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import Cluster
from cluster.fake_nodes import RACK, TOLERATION, fake_nodes, racks
from jobs import Job, apply_job, await_job, command_job, condition, holds

pytestmark = pytest.mark.cluster

RACKS, NODES, GPUS = 8, 8, 8
LANDED_S = 120.0
"""The most that KubeRay and the scheduler may take for the pods of a large job on a busy machine."""
INFINIBAND = {"feature.node.kubernetes.io/pci-0207_15b3.present": "true"}
"""NFD's label of nodes with an adapter of NVIDIA's for InfiniBand."""
HCA = "rdma/hca_shared_devices_a"
GPU = {"resourceName": "nvidia.com/gpu", "count": GPUS}


@pytest.fixture(scope="module", autouse=True)
def _racks(cluster: Cluster) -> Iterator[None]:
    if not cluster.layout:
        pytest.skip("fake nodes are added to the embedded cluster alone")
    with fake_nodes(cluster, racks(RACKS, nodes=NODES, gpus=GPUS)):
        yield


def job_of(workers: int, *, mode: str, **fields: Any) -> Job:
    """A job of so many whole nodes near each other; its head is on such a node too, where nothing really runs."""
    resources = {"cpu": "100", "memory": "1Ti"}
    group = {"replicas": workers, "resources": resources, "accelerator": GPU, "tolerations": [TOLERATION], **fields}
    head = {"resources": {"cpu": "1", "memory": "2Gi"}, "tolerations": [TOLERATION], "nodeSelector": {RACK: "rack-0"}}
    job = command_job(f"{mode}-{workers}", "true", head=head, workers=[group])
    job["spec"]["scheduling"] = {"topology": {"key": RACK, "mode": mode}}
    return job


def landing(cluster: Cluster, namespace: str, job: Job) -> Counter[str]:
    """Rack -> workers on it, of the applied job, once all of them are up, each on a node of its own."""
    name = apply_job(cluster, namespace, job)
    await_job(
        cluster, namespace, name, lambda job: holds(job, "ClusterReady"), what="all pods on a node", timeout_s=LANDED_S
    )
    selector = f"ray.io/cluster={name},ray.io/node-type=worker"
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    (group,) = job["spec"]["cluster"]["workers"]
    assert len(nodes) == group["replicas"]
    return Counter(node.rpartition("-")[0] for node in nodes)


def test_job_that_fits_a_rack_lands_in_one(cluster: Cluster, namespace: str) -> None:
    assert list(landing(cluster, namespace, job_of(NODES, mode="required")).values()) == [NODES]


def test_job_that_prefers_a_rack_lands_although_none_holds_it(cluster: Cluster, namespace: str) -> None:
    assert landing(cluster, namespace, job_of(32, mode="preferred")).total() == 32


def test_job_stays_within_the_racks_that_it_names(cluster: Cluster, namespace: str) -> None:
    wanted = [f"rack-{number}" for number in (1, 3, 5, 7)]
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": wanted}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    job = job_of(32, mode="preferred", podTemplate={"spec": {"affinity": affinity}})
    assert landing(cluster, namespace, job) == dict.fromkeys(wanted, NODES)


def test_job_that_needs_more_than_a_rack_waits_and_says_why(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, job_of(NODES + 1, mode="required"))
    words = "didn't match pod affinity rules"
    said = await_job(
        cluster,
        namespace,
        name,
        lambda job: words in condition(job, "ClusterReady")["message"],
        what="the scheduler's words",
        timeout_s=LANDED_S,
    )
    assert words in said["status"]["message"]


def test_gang_that_does_not_fit_takes_no_node(cluster: Cluster, namespace: str) -> None:
    job = job_of(RACKS * NODES + 1, mode="preferred")
    job["spec"]["scheduling"] |= {"schedulerName": "default-scheduler", "gang": True}
    name = apply_job(cluster, namespace, job)
    await_job(
        cluster,
        namespace,
        name,
        lambda job: condition(job, "ClusterReady")["reason"] == "Unschedulable",
        what="the scheduler's words",
        timeout_s=LANDED_S,
    )
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "json"))
    assert [pod["metadata"]["name"] for pod in pods["items"] if "nodeName" in pod["spec"]] == []


def test_mixed_fleet_gets_the_generic_profile_and_says_why(cluster: Cluster, namespace: str) -> None:
    other = [f"rack-7-{number}" for number in range(NODES)]
    try:
        for node in other:
            cluster.label_node(node, INFINIBAND)
            cluster.set_extended_resource(node, HCA, 8)
        name = apply_job(cluster, namespace, job_of(2, mode="preferred"))
        decided = await_job(
            cluster, namespace, name, lambda job: "network" in job["status"], what="its network", timeout_s=LANDED_S
        )
    finally:
        for node in other:
            cluster.label_node(node, dict.fromkeys(INFINIBAND))
            cluster.set_extended_resource(node, HCA, 0)
    network, found = decided["status"]["network"], condition(decided, "FabricVerified")
    assert (network["profile"], network["agree"], network["candidates"]) == ("generic", False, RACKS * NODES)
    assert (found["status"], found["reason"]) == ("False", "NodesDisagree")
    assert "infiniband" in found["message"]
