"""Mistakes that keep a job from running, each in a real job: the status names it, and its remedy makes the job succeed.

test_preflight.py has those that the preflight checks name, test_failures.py a rank that hangs. The jobs run side by
side, because most of them only wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_condition,
    await_job,
    build_command_job,
    get_condition,
)

pytestmark = pytest.mark.cluster

POD = {"cpu": "350m", "memory": "2Gi", "sharedMemory": "512Mi"}
"""The pods of four jobs fit on the cluster."""
GPU = "nvidia.com/gpu"

DEMAND = """
import ray
from ray.util.placement_group import placement_group
ray.init()
ray.get(placement_group([{"CPU": 1}, {"CPU": 1}]).ready())
print("trained")
"""
LISTEN = "import socket, threading; server = socket.create_server(('', 6379)); threading.Event().wait()"


def build_job(name: str, program: str = "print('trained')") -> Job:
    job = build_command_job(name, "python3", "-c", program, head={"resources": POD})
    job["spec"]["cluster"]["workers"] = [{"replicas": 1, "resources": POD}]
    return job


def build_listener(image: str) -> dict[str, object]:
    """A sidecar that listens on the port of the Ray head before Ray starts."""
    return {
        "name": "cache",
        "image": image,
        "command": ["python3", "-c", LISTEN],
        "restartPolicy": "Always",
        "startupProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1, "failureThreshold": 300},
    }


def await_finding(cluster: Cluster, namespace: str, job: Job, code: str) -> Job:
    """Wait until the best finding of the job is `code`, and return the job."""

    def is_found(job: Job) -> bool:
        return [each["code"] for each in job["status"].get("findings", [])][:1] == [code]

    name = job["metadata"]["name"]
    return await_job(cluster, namespace, name, is_found, what=f"the finding {code}", timeout_s=START_TIMEOUT_S)


def apply_remedy(cluster: Cluster, namespace: str, job: Job) -> None:
    """Delete the job and apply its corrected form with another name, which need not wait for the old pods."""
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", job["metadata"]["name"], "--wait=false")
    job["metadata"]["name"] += "-again"
    apply_job(cluster, namespace, job)


def await_success(cluster: Cluster, namespace: str, job: Job) -> Job:
    return await_condition(cluster, namespace, job["metadata"]["name"], "Succeeded", timeout_s=START_TIMEOUT_S)


@pytest.fixture
def gpus(cluster: Cluster) -> Iterator[GpuNodes]:
    """The nodes, whose GPUs are removed afterwards."""
    nodes = GpuNodes(cluster)
    yield nodes
    for node in cluster.nodes():
        nodes.set(node, None)


class GpuNodes:
    """Nodes that advertise GPUs, as a device plugin does. Programs find no device."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def set(self, node: str, count: str | None) -> None:
        status = {"status": {"capacity": {GPU: count}, "allocatable": {GPU: count}}}
        self._cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def test_a_cluster_that_does_not_start_is_explained(cluster: Cluster, namespace: str, gpus: GpuNodes) -> None:
    demand = build_job("demand", DEMAND)
    demand["spec"]["failurePolicy"] = {"progressDeadlineSeconds": 60}
    far = build_job("far")
    unresolved = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}}
    far["spec"]["cluster"]["workers"][0]["podTemplate"] = {"spec": unresolved}
    accelerated = build_job("gpus")
    accelerated["spec"]["cluster"]["workers"][0] |= {
        "replicas": 2,
        "accelerator": {"resourceName": GPU, "count": 1},
    }
    twice = build_job("twice")  # the missing image hides that its port is taken
    image = twice["spec"]["cluster"]["image"]
    twice["spec"]["cluster"]["head"]["podTemplate"] = {"spec": {"initContainers": [build_listener(image)]}}
    twice["spec"]["cluster"]["image"] = "localhost/rlt-nothing:1"
    for job in (twice, demand, accelerated):
        apply_job(cluster, namespace, job)

    found = await_finding(cluster, namespace, twice, "ImageNotFound")
    assert "localhost/rlt-nothing:1" in found["status"]["findings"][0]["evidence"]
    assert "localhost/rlt-nothing:1" in get_condition(found, "ClusterReady")["message"]
    assert "spec.cluster.image" in found["status"]["findings"][0]["remedy"]
    twice["spec"]["cluster"]["image"] = image
    apply_remedy(cluster, namespace, twice)

    name = accelerated["metadata"]["name"]
    held = await_job(
        cluster,
        namespace,
        name,
        lambda job: get_condition(job, "FabricVerified")["reason"] == "ResourceNotFound",
        what="a node with GPUs",
        timeout_s=EVENT_TIMEOUT_S,
    )
    assert f"None of 2 nodes has {GPU} in allocatable" in held["status"]["message"]
    one, other = cluster.nodes()
    gpus.set(one, "1")
    await_finding(cluster, namespace, accelerated, "GpusUnschedulable")
    await_job(
        cluster,
        namespace,
        name,
        # on a busy machine, containers of the head may crash meanwhile, which the status reports first
        lambda job: job["status"]["phase"] == "Pending" and f"Insufficient {GPU}" in job["status"]["message"],
        what=f"a second node with {GPU}",
        timeout_s=EVENT_TIMEOUT_S,
    )
    gpus.set(other, "1")

    found = await_finding(cluster, namespace, twice, "RayPortInUse")
    assert "spec.cluster.head.podTemplate" in found["status"]["findings"][0]["remedy"]
    del twice["spec"]["cluster"]["head"]["podTemplate"]
    apply_remedy(cluster, namespace, twice)

    await_success(cluster, namespace, accelerated)  # two cores start only a few Ray nodes in the 30 s that Ray waits
    apply_job(cluster, namespace, far)
    found = await_finding(cluster, namespace, far, "WorkerCannotReachHead")
    assert get_condition(found, "ClusterReady")["reason"] == "HeadUnreachable"
    assert found["status"]["findings"][0]["pod"].startswith("far-workers-")
    assert "dnsPolicy" in found["status"]["findings"][0]["remedy"]
    del far["spec"]["cluster"]["workers"][0]["podTemplate"]
    apply_remedy(cluster, namespace, far)

    found = await_finding(cluster, namespace, demand, "RayResourcesMissing")
    failed = get_condition(found, "Failed")
    assert failed["reason"] == "RayResourcesMissing"
    assert get_condition(found, "Running")["reason"] == "NoProgress"
    assert (
        "Ray waits for resources: a placement group of 2 x {'CPU': 1.0}. Its nodes have {'CPU': 1.0}."
        in failed["message"]
    )
    assert "replicas" in found["status"]["findings"][0]["remedy"]
    demand["spec"]["cluster"]["workers"][0]["replicas"] = 2
    apply_remedy(cluster, namespace, demand)

    for job in (accelerated, twice, far, demand):
        assert await_success(cluster, namespace, job)["status"].get("findings", []) == []
