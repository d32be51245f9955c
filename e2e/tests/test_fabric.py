"""On nodes with accelerators and RDMA, the containers match status.network.

The nodes have no devices: their labels and resources are those that NFD, GFD, AMD's labeller and the RDMA device plugin
report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.jobs import START_TIMEOUT_S, Job, apply_job, await_condition, build_command_job, get_condition

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "KUBECONFIG" in os.environ, reason="needs the nodes of the embedded cluster, and KUBECONFIG is set"
    ),
]

FOREVER = ("python3", "-c", "import threading; threading.Event().wait()")
HCA = "rdma/hca_shared_devices_a"
INFINIBAND = {
    "feature.node.kubernetes.io/pci-0207_15b3.present": "true",
    "feature.node.kubernetes.io/rdma.available": "true",
}
MEMORY = 2 * 2**30
SHARED_MEMORY = 512 * 2**20
CAP_IPC_LOCK = 1 << 14  # include/uapi/linux/capability.h

INSPECT = """
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
"""Prints the environment, groups, capabilities and limits of a process in the container."""


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
    """A node of each vendor for the duration of the test."""
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


def build_job(fleet: Fleet, name: str) -> Job:
    """Build a job that requests all accelerators of a node in the fleet."""
    worker = {
        "resources": {"cpu": "500m", "memory": str(MEMORY), "sharedMemory": str(SHARED_MEMORY)},
        "accelerator": {"resourceName": fleet.accelerator, "count": 8},
    }
    job = build_command_job(name, *FOREVER, workers=[worker])
    job["spec"]["network"] = {"require": "rdma"}
    return job


def inspect(cluster: Cluster, namespace: str, pod: str, container: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl("-n", namespace, "exec", pod, "-c", container, "--", "python3", "-c", INSPECT)
    )
    return found


def test_containers_match_the_status(cluster: Cluster, namespace: str, fleets: dict[str, Fleet]) -> None:
    names = {apply_job(cluster, namespace, build_job(fleet, name)): fleet for name, fleet in fleets.items()}
    for name, fleet in names.items():
        job = await_condition(cluster, namespace, name, "Running", timeout_s=START_TIMEOUT_S)
        assert_status_has_reasons(job, fleet)
        assert_containers_match(cluster, namespace, job, fleet)


def assert_status_has_reasons(job: Job, fleet: Fleet) -> None:
    network = job["status"]["network"]
    assert (network["profile"], network["fabric"], network["agree"]) == (fleet.profile, "infiniband", True)
    assert get_condition(job, "FabricVerified")["reason"] == "FabricFound"
    assert network["evidence"]
    assert all(each["rule"] and each["source"] for each in network["env"])
    assert network["attach"]["resources"] == {HCA: 1}


def assert_containers_match(cluster: Cluster, namespace: str, job: Job, fleet: Fleet) -> None:
    network = job["status"]["network"]
    selector = f"ray.io/cluster={job['metadata']['name']}"
    variables = {each["name"]: each["value"] for each in network["env"]}
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    (worker,) = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"]
    limits = worker["spec"]["containers"][0]["resources"]["limits"]
    assert (limits[fleet.accelerator], limits[HCA]) == ("8", "1")
    inside = inspect(cluster, namespace, worker["metadata"]["name"], "ray-worker")
    assert variables.items() <= inside["env"].items()
    assert not [variable for variable in inside["env"] if variable.endswith("_VISIBLE_DEVICES")]
    assert set(network["attach"].get("supplementalGroups", ())) == set(fleet.groups) <= set(inside["groups"])
    assert (network["attach"]["capabilities"], inside["bounding"]) == (["IPC_LOCK"], CAP_IPC_LOCK)
    assert inside["seccomp"] == 2  # a filter: RuntimeDefault
    assert (inside["memory"], inside["shm"]) == (MEMORY, SHARED_MEMORY)
    assert {"/dev/shm", "/etc/rlt"} <= set(inside["mounts"])
    (head,) = [pod for pod in pods if pod is not worker]
    inside = inspect(cluster, namespace, head["metadata"]["name"], "ray-head")
    assert variables.items() <= inside["env"].items()
    assert inside["bounding"] == 0
