"""Nodes that offer accelerators and RDMA, and what is then inside the containers: what status.network says.

No device stands behind the resources: labels and amounts are those that NFD, GFD, AMD's labeller and the RDMA device
plugin would report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster import Cluster
from jobs import Job, apply_job, await_job, command_job, condition, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" in os.environ, reason="KUBECONFIG names a cluster whose nodes are not ours"),
]

START_S = 600.0
"""The most that a Ray cluster may take to come up on a busy machine."""
FOREVER = ("python3", "-c", "import threading; threading.Event().wait()")
HCA = "rdma/hca_shared_devices_a"
INFINIBAND = {
    "feature.node.kubernetes.io/pci-0207_15b3.present": "true",
    "feature.node.kubernetes.io/rdma.available": "true",
}
MEMORY, SHARED_MEMORY = 2 * 2**30, 512 * 2**20
CAP_IPC_LOCK = 1 << 14  # include/uapi/linux/capability.h

LOOK = """
import json, os, pathlib, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
limits = [pathlib.Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory/memory.limit_in_bytes")]
shm = os.statvfs("/dev/shm")
json.dump({
    "env": dict(os.environ),
    "groups": os.getgroups(),
    "bounding": int(status["CapBnd"], 16),
    "seccomp": int(status["Seccomp"]),
    "memory": next(int(path.read_text()) for path in limits if path.exists()),
    "shm": shm.f_blocks * shm.f_frsize,
    "mounts": [line.split()[1] for line in open("/proc/mounts")],
}, sys.stdout)
"""
"""What a process of the container sees of itself."""


@dataclass(frozen=True)
class Fleet:
    """Nodes of one vendor."""

    profile: str
    accelerator: str
    labels: dict[str, str]
    groups: tuple[int, ...]


FLEETS = {
    "nvidia": Fleet(
        "onprem-infiniband",
        "nvidia.com/gpu",
        {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        (),
    ),
    "amd": Fleet("amd-infiniband", "amd.com/gpu", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, (44,)),
}


@pytest.fixture
def fleets(cluster: Cluster) -> Iterator[dict[str, Fleet]]:
    """A node of each vendor, as long as the test lasts."""
    nodes = dict(zip(cluster.nodes(), FLEETS.values(), strict=True))
    try:
        for node, fleet in nodes.items():
            cluster.label_node(node, {**fleet.labels, **INFINIBAND})
            for resource in (fleet.accelerator, HCA):
                cluster.set_extended_resource(node, resource, 8)
        yield FLEETS
    finally:
        for node, fleet in nodes.items():
            cluster.label_node(node, dict.fromkeys({**fleet.labels, **INFINIBAND}))
            for resource in (fleet.accelerator, HCA):
                cluster.set_extended_resource(node, resource, 0)


def job_on(fleet: Fleet, name: str) -> Job:
    """A job that holds a whole node of the fleet."""
    worker = {
        "resources": {"cpu": "500m", "memory": str(MEMORY), "sharedMemory": str(SHARED_MEMORY)},
        "accelerator": {"resourceName": fleet.accelerator, "count": 8},
    }
    job = command_job(name, *FOREVER, workers=[worker])
    job["spec"]["network"] = {"require": "rdma"}
    return job


def look_into(cluster: Cluster, namespace: str, pod: str, container: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        cluster.kubectl("-n", namespace, "exec", pod, "-c", container, "--", "python3", "-c", LOOK)
    )
    return said


def test_inside_the_containers_it_is_as_the_status_says(
    cluster: Cluster, namespace: str, fleets: dict[str, Fleet]
) -> None:
    names = {apply_job(cluster, namespace, job_on(fleet, name)): fleet for name, fleet in fleets.items()}
    for name, fleet in names.items():
        job = await_job(cluster, namespace, name, lambda job: holds(job, "Running"), what="Running", timeout_s=START_S)
        the_reasons_are_there(job, fleet)
        the_containers_are_so(cluster, namespace, job, fleet)


def the_reasons_are_there(job: Job, fleet: Fleet) -> None:
    network = job["status"]["network"]
    assert (network["profile"], network["fabric"], network["agree"]) == (fleet.profile, "infiniband", True)
    assert condition(job, "FabricVerified")["reason"] == "FabricFound"
    assert network["evidence"]
    assert all(each["rule"] and each["source"] for each in network["env"])
    assert network["attach"]["resources"] == {HCA: 1}


def the_containers_are_so(cluster: Cluster, namespace: str, job: Job, fleet: Fleet) -> None:
    network, selector = job["status"]["network"], f"ray.io/cluster={job['metadata']['name']}"
    variables = {each["name"]: each["value"] for each in network["env"]}
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    (worker,) = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"]
    limits = worker["spec"]["containers"][0]["resources"]["limits"]
    assert (limits[fleet.accelerator], limits[HCA]) == ("8", "1")
    inside = look_into(cluster, namespace, worker["metadata"]["name"], "ray-worker")
    assert variables.items() <= inside["env"].items()
    assert not [variable for variable in inside["env"] if variable.endswith("_VISIBLE_DEVICES")]
    assert set(network["attach"]["supplementalGroups"]) == set(fleet.groups) <= set(inside["groups"])
    assert (network["attach"]["capabilities"], inside["bounding"]) == (["IPC_LOCK"], CAP_IPC_LOCK)
    assert inside["seccomp"] == 2  # a filter: RuntimeDefault
    assert (inside["memory"], inside["shm"]) == (MEMORY, SHARED_MEMORY)
    assert {"/dev/shm", "/etc/rlt"} <= set(inside["mounts"])
    (head,) = [pod for pod in pods if pod is not worker]
    inside = look_into(cluster, namespace, head["metadata"]["name"], "ray-head")
    assert variables.items() <= inside["env"].items()
    assert inside["bounding"] == 0
