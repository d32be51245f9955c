"""Nodes without accelerators, of several kinds, with contradictory labels, or with parts of devices."""

from __future__ import annotations

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    amd,
    aws,
    node,
    nvidia,
    oracle,
    pair,
)
from fabric.node_set import NVIDIA, ON_CPU, RDMA_ONLY, Case

from rlt_core.fabric.demand import Demand

COREWEAVE = {"backend.coreweave.cloud/flavor": "infiniband", "backend.coreweave.cloud/leafgroup": "1"}

MIXED: dict[str, Case] = {
    "cpu-only": Case(pair({}, {}), ON_CPU, "cpu-only", "tcp"),
    "cpu-job-on-gpu-nodes": Case(pair(nvidia() | IB, GPUS | HCA), ON_CPU, "cpu-only", "tcp"),
    "mixed-ib-and-tcp": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)],
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=("do not agree",),
    ),
    "mixed-ib-and-tcp-rdma": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia(), GPUS)],
        RDMA_ONLY,
        "generic",
        "tcp",
        rejected="MixedFabric",
        agree=False,
    ),
    "mixed-with-enough-rdma": Case(
        [*(node(name, nvidia() | IB, GPUS | HCA) for name in "abc"), node("d", nvidia(), GPUS)],
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=(
            "so that all workers use TCP",
            "3 nodes of onprem-infiniband with rdma/hca_shared_devices_a: 1 have room for all workers: to use RDMA, "
            'set spec.cluster.workers[].nodeSelector to {feature.node.kubernetes.io/pci-15b3.present: "true"}',
        ),
    ),
    "mixed-with-enough-rdma-and-no-label": Case(
        [
            *(node(name, nvidia() | IB, GPUS | HCA) for name in "ab"),
            node("c", nvidia() | IB, GPUS),
        ],
        RDMA_ONLY,
        "generic",
        "tcp",
        rejected="MixedFabric",
        agree=False,
        warns=("podTemplate: kubernetes.io/hostname In [a, b]",),
    ),
    "mixed-oracle-shapes": Case(
        [*oracle("BM.GPU.H100.8", GPUS, nvidia())[:1], *oracle("BM.GPU.B4.8", GPUS, nvidia("NVIDIA-A100"))[1:]],
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
    ),
    "mixed-products-same-settings": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", nvidia("NVIDIA-A100-SXM4-80GB") | IB, GPUS | HCA)],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("different GPUs",),
    ),
    "mixed-vendors": Case(
        [node("a", nvidia() | IB, GPUS | HCA), node("b", amd() | IB, AMD_GPUS | HCA)],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
    ),
    "contradictory-vendor": Case(
        pair(nvidia() | amd() | IB, GPUS | HCA), NVIDIA, "generic", "tcp", agree=False, warns=("contradict",)
    ),
    "contradictory-product": Case(
        aws("p5.48xlarge", 32, "NVIDIA-A100-SXM4-40GB"), RDMA_ONLY, "generic", "tcp", "ContradictoryLabels", agree=False
    ),
    "contradictory-link": Case(
        pair(nvidia() | COREWEAVE | {"backend.coreweave.cloud/flavor": "roce"} | IB, GPUS | {"rdma/ib": 1}),
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
        warns=("contradict",),
    ),
    "contradictory-cloud": Case(
        pair(nvidia() | {"cloud.google.com/gke-nodepool": "p", "eks.amazonaws.com/nodegroup": "g"}, GPUS),
        NVIDIA,
        "generic",
        "tcp",
        agree=False,
    ),
    "mig": Case(
        pair(nvidia("NVIDIA-A100-SXM4-40GB") | {"nvidia.com/mig.strategy": "mixed"}, {"nvidia.com/mig-1g.5gb": 56}),
        Demand("nvidia.com/mig-1g.5gb", 2, 2),
        "tcp",
        "tcp",
        warns=("MIG 1g.5gb",),
    ),
    "time-slicing": Case(
        pair(
            nvidia(
                "NVIDIA-L4-SHARED",
                **{
                    "nvidia.com/gpu.sharing-strategy": "time-slicing",
                    "nvidia.com/gpu.replicas": "4",
                    "nvidia.com/gpu.count": "1",
                },
            ),
            {"nvidia.com/gpu": 4},
        ),
        Demand("nvidia.com/gpu", 2, 2),
        "tcp",
        "tcp",
        warns=("time-slicing, 4 replicas",),
    ),
}
