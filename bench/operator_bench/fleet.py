"""A fleet of many large nodes without RDMA, and jobs that wait for RDMA: memory and the event loop of the operator."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from operator_bench.environment import running
from operator_bench.objects import SPEC, create_all, create_namespace, make_job
from operator_bench.observer import connecting, observing
from operator_bench.processes import make_operator
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_e2e.cluster import Cluster, processes

NODE_BYTES = 20_000
"""Size of a node as JSON. Most of it is the list of its images."""
HELD_JOBS = 64
CHANGED_NODES = 100
SETTLE_S = 20.0

HELD_SPEC = {
    **SPEC,
    "network": {"require": "rdma"},
    "cluster": {
        "image": "registry.example/trainer",
        "workers": [
            {
                "replicas": 2,
                "resources": {"cpu": "32", "memory": "512Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            }
        ],
    },
}


@dataclass(frozen=True)
class Fleet:
    """The operator with many nodes."""

    nodes: int
    peak_mb: float
    """Peak of its resident memory."""
    loop_delays: dict[float, int]
    """Upper bound of an event loop delay in seconds -> number of measurements up to it."""


async def measure_fleet(cluster: Cluster, nodes: int) -> Fleet:
    """Start the operator with the nodes and the jobs, then change some nodes, each of which wakes all jobs."""
    assert cluster.layout
    # Without its lease the controller manager would soon change every node.
    processes.kill(
        each.pid for each in processes.list_running(cluster.layout.state) if each.name == "kube-controller-manager"
    )
    operator = make_operator(cluster)
    async with connecting(cluster.kubeconfig) as api:
        await create_namespace(api, "held")
        await create_all(api, api_paths.NODES, [build_node(number) for number in range(nodes)])
        # The API server adds the taint not-ready to a new node, which the controller manager would remove.
        untainted = {"spec": {"taints": None}}
        await asyncio.gather(*(api.merge(f"{api_paths.NODES}/node-{n}", untainted) for n in range(nodes)))
        path = api_paths.jobs("held")
        async with observing(api, path, _is_held) as jobs:
            with running(operator):
                operator.wait()
                await create_all(api, path, [make_job("held", f"job-{n}", HELD_SPEC) for n in range(HELD_JOBS)])
                await jobs.wait(lambda: jobs.count(True) == HELD_JOBS, f"{HELD_JOBS} jobs wait for RDMA")
                for number in range(CHANGED_NODES):
                    await api.merge(f"{api_paths.NODES}/node-{number}", {"metadata": {"labels": {"changed": "true"}}})
                await asyncio.sleep(SETTLE_S)
                return Fleet(nodes, operator.memory_mb("VmHWM"), parse_delays(operator.metrics()))


def build_node(number: int) -> Manifest:
    """A node with eight GPUs, without RDMA."""
    name = f"node-{number}"
    image_name = f"registry.example/team-{number % 7}/image-of-some-length@sha256:{'0' * 64}"
    image = {"names": [image_name], "sizeBytes": 10**9}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": f"zone-{number % 8}",
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                **{f"label-{each}.example.com/name": "value" for each in range(30)},
            },
        },
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
            "capacity": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [image] * (NODE_BYTES // 150),
        },
    }


def parse_delays(metrics: str) -> dict[float, int]:
    """The buckets of the operator's delay histogram."""
    pattern = r'^rlt_operator_event_loop_delay_seconds_bucket\{le="([^"]+)"\} (\S+)$'
    return {float(bound): int(float(count)) for bound, count in re.findall(pattern, metrics, re.MULTILINE)}


def _is_held(manifest: Manifest) -> bool:
    conditions = manifest.get("status", {}).get("conditions", [])
    return any(each["type"] == "FabricVerified" and each["reason"] == "RdmaNotFound" for each in conditions)
