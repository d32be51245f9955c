"""Nodes of cloud providers."""

from __future__ import annotations

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    TYPE,
    amd,
    aws,
    azure,
    gke,
    node,
    nvidia,
    oracle,
    pair,
)
from fabric.node_set import AMD, NVIDIA, RDMA_ONLY, Case

from rlt_core.fabric.demand import Demand

RAILS = [f"rdma-{rail}" for rail in range(8)]
CLIQUE = {"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"}
GB200 = nvidia("NVIDIA-GB200", **CLIQUE)
GB_DEMAND = Demand("nvidia.com/gpu", 4, 2)
COREWEAVE = {"backend.coreweave.cloud/flavor": "infiniband", "backend.coreweave.cloud/leafgroup": "1"}

CLOUDS: dict[str, Case] = {
    "aws-p5": Case(aws("p5.48xlarge", 32), RDMA_ONLY, "aws-efa", "efa"),
    "aws-p5en": Case(aws("p5en.48xlarge", 16, "NVIDIA-H200"), NVIDIA, "aws-efa", "efa"),
    "aws-p4d-old-plugin": Case(
        aws("p4d.24xlarge", 4, "NVIDIA-A100-SXM4-40GB"),
        Demand("nvidia.com/gpu", 8, 2, admin_env=(("AWS_OFI_NCCL_VERSION", "1.5.0"),)),
        "aws-efa",
        "efa",
    ),
    "aws-p5-without-efa-plugin": Case(
        aws("p5.48xlarge", 0), RDMA_ONLY, "tcp", "tcp", rejected="RdmaNotFound", warns=("vpc.amazonaws.com/efa",)
    ),
    "gke-a3-ultra": Case(gke("a3-ultragpu-8g", "nvidia-h200-141gb", RAILS), RDMA_ONLY, "gke-gib", "gib"),
    "gke-a4": Case(gke("a4-highgpu-8g", "nvidia-b200", RAILS), NVIDIA, "gke-gib", "gib"),
    "gke-a3-ultra-without-networks": Case(
        gke("a3-ultragpu-8g", "nvidia-h200-141gb", []),
        RDMA_ONLY,
        "gke-gib",
        "gib",
        rejected="RdmaNotAttached",
        warns=("multi-networking",),
    ),
    "gke-a4-dranet": Case(
        gke("a4-highgpu-8g", "nvidia-b200", [], more={"cloud.google.com/gke-networking-dra-driver": "true"}),
        RDMA_ONLY,
        "gke-gib",
        "gib",
        rejected="RdmaNotAttached",
        warns=("network.attach: dra, because these nodes have DRANET",),
    ),
    "mixed-drivers": Case(
        [
            node(name, nvidia(**{"nvidia.com/cuda.driver-version.full": version}) | IB, GPUS | HCA)
            for name, version in (("a", "570.86.15"), ("b", "535.230.02"))
        ],
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("different drivers (535.230.02, 570.86.15)",),
    ),
    "gke-a3-mega": Case(
        gke("a3-megagpu-8g", "nvidia-h100-mega-80gb", [f"vpc{n}" for n in range(1, 9)]),
        NVIDIA,
        "gke-tcpxo",
        "tcpxo",
        warns=("tcpxo-daemon",),
    ),
    "gke-a3-high": Case(
        gke("a3-highgpu-8g", "nvidia-h100-80gb", [f"vpc{n}" for n in range(1, 5)]), NVIDIA, "gke-tcpx", "tcpx"
    ),
    "gke-a4x": Case(
        gke("a4x-highgpu-4g", "nvidia-gb200", RAILS[:4], gpus=4, more=CLIQUE), GB_DEMAND, "gke-gib-nvl72", "mnnvl+gib"
    ),
    "gke-one-label-alone": Case(
        pair({"cloud.google.com/gke-accelerator": "nvidia-h200-141gb"}, GPUS), NVIDIA, "tcp", "tcp", warns=("alone",)
    ),
    "coreweave-ib": Case(
        pair(nvidia() | COREWEAVE, GPUS | {"rdma/ib": 1}), RDMA_ONLY, "coreweave-infiniband", "infiniband"
    ),
    "coreweave-roce": Case(
        pair(nvidia("NVIDIA-B200") | COREWEAVE | {"backend.coreweave.cloud/flavor": "roce"}, GPUS | {"rdma/ib": 1}),
        NVIDIA,
        "coreweave-roce",
        "roce",
    ),
    "coreweave-gb200": Case(
        pair(GB200 | COREWEAVE, {"nvidia.com/gpu": 4, "rdma/ib": 1}), GB_DEMAND, "coreweave-nvl72", "mnnvl+infiniband"
    ),
    "oracle-h100": Case(oracle("BM.GPU.H100.8", GPUS, nvidia()), RDMA_ONLY, "oracle-roce", "roce"),
    "oracle-b300-virtual-functions": Case(
        oracle("BM.GPU.B300.8", GPUS | {"nvidia.com/rdma-vf": 16}, nvidia("NVIDIA-B300")), NVIDIA, "oracle-roce", "roce"
    ),
    "oracle-gb200": Case(
        oracle("BM.GPU.GB200-v3.4", {"nvidia.com/gpu": 4}, GB200), GB_DEMAND, "oracle-nvl72", "mnnvl+roce"
    ),
    "oracle-mi300x": Case(oracle("BM.GPU.MI300X.8", AMD_GPUS, amd()), AMD, "oracle-roce-amd", "roce"),
    "azure-h100": Case(
        azure("Standard_ND96isr_H100_v5", GPUS | {"rdma/ib": 8}, nvidia()), RDMA_ONLY, "azure-infiniband", "infiniband"
    ),
    "azure-h100-shared": Case(
        azure("Standard_ND96isr_H100_v5", GPUS | {"rdma/shared_ib": 63}, nvidia()),
        NVIDIA,
        "azure-infiniband",
        "infiniband",
    ),
    "azure-mi300x": Case(
        azure("Standard_ND96isr_MI300X_v5", AMD_GPUS | {"rdma/ib": 8}, amd()), AMD, "azure-infiniband-amd", "infiniband"
    ),
    "nebius": Case(
        pair(nvidia("NVIDIA-H200") | IB | {"nebius.com/gpu": "true"}, GPUS), NVIDIA, "nebius-infiniband", "infiniband"
    ),
    "together": Case(
        pair(nvidia() | IB | {"node-role.together.ai/worker": "true"}, GPUS),
        NVIDIA,
        "together-infiniband",
        "infiniband",
    ),
    "together-by-one-label": Case(
        pair(nvidia() | {"node-role.together.ai/worker": "true"}, GPUS), NVIDIA, "tcp", "tcp"
    ),
    "instance-type-alone": Case(
        pair({TYPE: "BM.GPU.H100.8"}, {"nvidia.com/gpu": 2}), Demand("nvidia.com/gpu", 2), "tcp", "tcp"
    ),
}
