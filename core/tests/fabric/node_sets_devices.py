"""Accelerators that allocatable lacks, fewer usable nodes than workers, and RDMA resources under names of a site."""

from __future__ import annotations

from dataclasses import replace

from fabric.node_builders import AMD_GPUS, GPUS, HCA, IB, NFD, ROCE, Manifest, amd, node, nvidia, pair
from fabric.node_set import AMD, NVIDIA, RDMA_ONLY, Case

from rlt_core.fabric.demand import Demand

GFD = nvidia() | IB
SLICES = {"nvidia.com/gpu": 0, "nvidia.com/mig-3g.40gb": 16}
DRA = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dra-driver": "true"}


def two(first: Manifest, second: Manifest) -> list[Manifest]:
    return [first, second]


def rails(name: str, count: int = 8) -> dict[str, int]:
    """One resource for each rail."""
    return {name.format(rail): 1 for rail in range(count)}


DEVICES: dict[str, Case] = {
    # accelerators
    "one-node-of-a-dra-driver": Case(
        two(node("plugin", GFD, GPUS | HCA), node("dra", DRA | IB, HCA)),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("1 of 2 nodes can run workers", "ResourceSlices", "on dra", "needs 2 workers", "room for 1"),
    ),
    "dra-driver-alone": Case(
        pair({"cloud.google.com/gke-nvidia-gpu-dra-driver": "true"}, {}), NVIDIA, "tcp", "none", "ResourceNotFound"
    ),
    "stale-count-label": Case(
        pair(GFD, {"nvidia.com/gpu": 0} | HCA), NVIDIA, "tcp", "none", rejected="ResourceNotFound"
    ),
    "stale-count-label-amd": Case(
        pair({"beta.amd.com/gpu.device-id.74a1": "8"}, {"amd.com/gpu": 0}), AMD, "tcp-amd", "none", "ResourceNotFound"
    ),
    "gpu-hardware-without-plugin": Case(
        pair({f"{NFD}/pci-10de.present": "true"}, {}), NVIDIA, "tcp", "none", rejected="ResourceNotFound"
    ),
    "mig-slices-instead-of-gpus": Case(pair(nvidia(), SLICES), NVIDIA, "tcp", "none", rejected="ResourceNotFound"),
    "gaudi-nodes-for-a-cuda-job": Case(pair({}, {"habana.ai/gaudi": 8}), NVIDIA, "tcp", "none", "ResourceNotFound"),
    "two-gpus-fewer-than-the-label": Case(
        two(node("a", GFD, GPUS | HCA), node("b", GFD, {"nvidia.com/gpu": 6} | HCA)),
        Demand("nvidia.com/gpu", 4, 3),
        "onprem-infiniband",
        "infiniband",
        warns=("gpu.count=8, but allocatable has 6: the others are unhealthy or reserved on b",),
    ),
    "dra-node-beside-enough-nodes": Case(
        [*pair(GFD, GPUS | HCA), node("dra", DRA | IB, HCA)],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("labels and allocatable do not agree", "on dra"),
    ),
    "cordoned-and-tainted": Case(
        [
            node("a", GFD, GPUS | HCA),
            node("b", GFD, GPUS | HCA, unschedulable=True),
            node("c", GFD, GPUS | HCA, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
        ],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("1 of 3 nodes can run workers (cordoned on b; taint team=x:NoSchedule is not tolerated on c)",),
    ),
    # names of a site
    "rails-of-a-site-amd": Case(
        pair(amd() | ROCE, AMD_GPUS | rails("example.com/rail{}")),
        AMD,
        "amd-roce-mlx5",
        "roce",
        warns=("pods get all of example.com/rail0",),
    ),
    "rails-as-one-word": Case(
        pair(GFD, GPUS | rails("example.com/gpurail{}")),
        RDMA_ONLY,
        "onprem-infiniband",
        "infiniband",
        warns=("pods get all of example.com/gpurail0",),
    ),
    "rails-by-interface": Case(
        pair(nvidia(), GPUS | rails("example.com/ibp{}s0")), RDMA_ONLY, "onprem-infiniband", "infiniband"
    ),
    "names-without-a-meaning": Case(
        pair(GFD, GPUS | rails("example.com/fast{}", 2)),
        NVIDIA,
        "tcp",
        "tcp",
        warns=("offer example.com/fast0, example.com/fast1", "set network.profile"),
    ),
    "names-without-a-meaning-or-labels": Case(
        pair(nvidia(), GPUS | rails("example.com/fast{}", 2)), NVIDIA, "tcp", "tcp", warns=("otherwise pods use TCP",)
    ),
    "names-without-a-meaning-requested": Case(
        pair(GFD, GPUS | rails("example.com/fast{}", 2)),
        replace(RDMA_ONLY, profile="onprem-infiniband", other_resources=("example.com/fast0", "example.com/fast1")),
        "onprem-infiniband",
        "infiniband",
    ),
    "one-rail-less-on-a-node": Case(
        two(node("a", GFD, GPUS | rails("example.com/rail{}")), node("b", GFD, GPUS | rails("example.com/rail{}", 7))),
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=("do not agree",),
    ),
    "other-rdma-names-on-a-node": Case(
        two(node("a", GFD, GPUS | {"rdma/ib_a": 63}), node("b", GFD, GPUS | {"rdma/ib_b": 63})),
        RDMA_ONLY,
        "generic",
        "tcp",
        rejected="MixedFabric",
        agree=False,
        warns=("rdma/ib_a: 1 on a",),
    ),
    "storage-by-name": Case(
        pair(GFD, GPUS | {"rdma/ib_compute": 63, "rdma/roce_storage": 63}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("pods do not get rdma/roce_storage, which by its name is for storage",),
    ),
    "two-shared-devices-of-unknown-link": Case(
        pair(nvidia() | {f"{NFD}/pci-15b3.present": "true"}, GPUS | {"rdma/shared_a": 63, "rdma/shared_b": 63}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("InfiniBand is assumed", "pods get all of rdma/shared_a, rdma/shared_b"),
    ),
    # by a claim alone
    "amd-adapters-without-plugin": Case(
        pair(amd() | {f"{NFD}/amd-nic": "true"}, AMD_GPUS), AMD, "tcp-amd", "tcp", warns=("network.attach: dra",)
    ),
    "rdma-capable-with-a-claim": Case(
        pair(nvidia() | {f"{NFD}/rdma.capable": "true"}, GPUS),
        NVIDIA,
        "tcp",
        "tcp",
        warns=("the podTemplate has a resourceClaim: if it is for RDMA, set network.attach: dra",),
    ),
    "claim-on-nodes-without-labels": Case(
        pair(nvidia(), GPUS), NVIDIA, "tcp", "tcp", warns=("set network.attach: dra and network.profile",)
    ),
}
