"""Nodes of one kind on premises, and devices that come by DRA."""

from __future__ import annotations

from dataclasses import replace

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    NFD,
    ROCE,
    amd,
    aws,
    azure,
    node,
    nvidia,
    pair,
)
from fabric.node_set import AMD, NVIDIA, RDMA_ONLY, Case

from rlt_core.fabric.demand import Demand

CLIQUE = {"nvidia.com/gpu.clique": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"}
GB200 = nvidia("NVIDIA-GB200", **CLIQUE)
GB_DEMAND = Demand("nvidia.com/gpu", 4, 2)

ON_PREMISES: dict[str, Case] = {
    # on premises
    "onprem-ib": Case(pair(nvidia() | IB, GPUS | HCA), NVIDIA, "onprem-infiniband", "infiniband"),
    "onprem-ib-vendor-only-label": Case(
        pair(nvidia() | {f"{NFD}/pci-15b3.present": "true"}, GPUS | HCA),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("InfiniBand is assumed",),
    ),
    "onprem-ib-by-resource-name": Case(
        pair(nvidia(), GPUS | {"rdma/rdma_shared_device_ib": 63}), NVIDIA, "onprem-infiniband", "infiniband"
    ),
    "onprem-ib-sriov": Case(
        pair(nvidia() | IB, GPUS | {"nvidia.com/sriov_ib_vf": 8}), NVIDIA, "onprem-infiniband", "infiniband"
    ),
    "onprem-ib-quantity-zero": Case(
        pair(nvidia() | IB, GPUS | {"rdma/hca_shared_devices_a": 0}), NVIDIA, "tcp", "tcp", warns=("missing",)
    ),
    "onprem-roce": Case(pair(nvidia() | ROCE, GPUS | HCA), NVIDIA, "onprem-roce", "roce", warns=("NCCL_IB_TC",)),
    "onprem-roce-old-nccl": Case(
        pair(nvidia() | ROCE, GPUS | HCA),
        Demand("nvidia.com/gpu", 8, 2, user_env=(("NCCL_VERSION", "2.18.5"),)),
        "onprem-roce",
        "roce",
    ),
    "onprem-roce-by-name-host-network": Case(
        pair(nvidia(), GPUS | {"rdma/roce_gpu": 8}),
        Demand("nvidia.com/gpu", 8, 2, attach="hostNetwork"),
        "onprem-roce",
        "roce",
        warns=("socketInterface",),
    ),
    "tcp": Case(pair(nvidia("NVIDIA-L40S"), GPUS), NVIDIA, "tcp", "tcp"),
    "tcp-old-vllm": Case(
        pair(nvidia("A100-SXM4-40GB"), GPUS),
        Demand("nvidia.com/gpu", 8, 2, user_env=(("VLLM_VERSION", "0.11.0"),)),
        "tcp",
        "tcp",
    ),
    "half-labelled": Case(pair({}, GPUS | HCA), NVIDIA, "onprem-infiniband", "infiniband", warns=("assumed",)),
    "labels-without-plugin": Case(
        pair(nvidia() | IB, GPUS), RDMA_ONLY, "tcp", "tcp", rejected="RdmaNotFound", warns=("missing",)
    ),
    "require-tcp-on-ib": Case(
        pair(nvidia() | IB, GPUS | HCA), Demand("nvidia.com/gpu", 8, 2, require="tcp"), "tcp", "tcp"
    ),
    "site-domain": Case(
        pair(nvidia() | IB, GPUS | {"hpc.example.com/rdma_shared": 63}),
        RDMA_ONLY,
        "onprem-infiniband",
        "infiniband",
        warns=("pods get 1 of 63 hpc.example.com/rdma_shared",),
    ),
    "one-resource-per-rail": Case(
        pair(nvidia() | ROCE, GPUS | {f"nvidia.com/rail{rail}": 1 for rail in range(8)}),
        RDMA_ONLY,
        "onprem-roce",
        "roce",
        warns=("pods get all of nvidia.com/rail0, nvidia.com/rail1",),
    ),
    "site-domain-per-rail": Case(
        pair(nvidia() | IB, GPUS | {f"fabric.example.com/ib-rail-{rail}": 1 for rail in range(4)}),
        RDMA_ONLY,
        "onprem-infiniband",
        "infiniband",
        warns=("set it to null in limits and requests",),
    ),
    "two-shared-devices": Case(
        pair(nvidia() | IB, GPUS | HCA | {"rdma/hca_shared_devices_b": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("no name shows which of them is for storage",),
    ),
    "shared-and-virtual-functions": Case(
        pair(nvidia() | IB, GPUS | HCA | {"nvidia.com/sriov_ib_vf": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("pods do not get rdma/hca_shared_devices_a: network.attach multus uses nvidia.com/sriov_ib_vf alone",),
    ),
    "adapters-of-unknown-vendor": Case(
        pair(nvidia(), GPUS | {"rdma/ib_nic": 8}),
        NVIDIA,
        "onprem-infiniband",
        "infiniband",
        warns=("NCCL_IB_HCA is not set",),
    ),
    "azure-dra-without-a-claim": Case(
        azure("Standard_ND96isr_H100_v5", GPUS, nvidia()),
        RDMA_ONLY,
        "tcp",
        "tcp",
        rejected="RdmaNotFound",
        warns=("a resourceClaim of a DRA driver", "network.attach: dra"),
    ),
    "azure-dra": Case(
        azure("Standard_ND96isr_H100_v5", GPUS, nvidia()),
        replace(RDMA_ONLY, attach="dra"),
        "azure-infiniband",
        "infiniband",
    ),
    "onprem-dra-without-a-claim": Case(
        pair(nvidia() | IB, GPUS),
        replace(RDMA_ONLY, attach="dra", has_resource_claims=False),
        "tcp",
        "tcp",
        rejected="AttachNotPossible",
        warns=("a resourceClaim of a DRA driver",),
    ),
    "aws-dra": Case(aws("p5.48xlarge", 0), replace(RDMA_ONLY, attach="dra"), "aws-efa", "efa"),
    "onprem-dra": Case(pair(nvidia() | IB, GPUS), replace(RDMA_ONLY, attach="dra"), "onprem-infiniband", "infiniband"),
    "two-cliques": Case(
        [
            node(
                f"{rack}-{index}",
                GB200 | {"nvidia.com/gpu.clique": f"7b968a6d.{rack}"} | IB,
                {"nvidia.com/gpu": 4, "rdma/ib_nic": 4},
            )
            for rack in (1, 2)
            for index in (1, 2)
        ],
        GB_DEMAND,
        "nvl72-infiniband",
        "mnnvl+infiniband",
        warns=("in 2 NVLink cliques: the workers are preferably placed in one",),
    ),
    "cliques-too-small": Case(
        [
            node(
                str(rack),
                GB200 | {"nvidia.com/gpu.clique": f"7b968a6d.{rack}"} | IB,
                {"nvidia.com/gpu": 4, "rdma/ib_nic": 4},
            )
            for rack in (1, 2)
        ],
        GB_DEMAND,
        "nvl72-infiniband",
        "mnnvl+infiniband",
        warns=("none has room for 2 workers (at most 1): between cliques they communicate by infiniband",),
    ),
    "nvl72-ib": Case(
        pair(GB200 | IB, {"nvidia.com/gpu": 4, "rdma/ib_nic": 4}), GB_DEMAND, "nvl72-infiniband", "mnnvl+infiniband"
    ),
    "nvl72-roce": Case(
        pair(nvidia("NVIDIA-GB300", **CLIQUE) | ROCE, {"nvidia.com/gpu": 4, "rdma/roce": 8}),
        GB_DEMAND,
        "nvl72-roce",
        "mnnvl+roce",
    ),
    "nvl72-alone": Case(pair(GB200, {"nvidia.com/gpu": 4}), GB_DEMAND, "nvl72-tcp", "mnnvl+tcp"),
    "gb200-without-clique": Case(
        pair(nvidia("NVIDIA-GB200") | IB, {"nvidia.com/gpu": 4, "rdma/ib_nic": 4}),
        GB_DEMAND,
        "onprem-infiniband",
        "infiniband",
        warns=("nvidia.com/gpu.clique",),
    ),
    # AMD on premises
    "amd-verl-cluster": Case(pair(amd() | ROCE, AMD_GPUS | HCA), AMD, "amd-roce-mlx5", "roce"),
    "amd-mi250-ib-old-labels": Case(
        pair({"beta.amd.com/gpu.device-id.740c": "8", "beta.amd.com/gpu.vram.64G": "8"} | IB, AMD_GPUS | HCA),
        AMD,
        "amd-infiniband",
        "infiniband",
    ),
    "amd-mi355x-pollara": Case(
        pair(amd("AMD_Instinct_MI355X_OAM"), AMD_GPUS | {"amd.com/nic": 8}), AMD, "amd-roce-pollara", "roce"
    ),
    "amd-broadcom": Case(
        pair(amd() | {f"{NFD}/pci-0200_14e4.present": "true"}, AMD_GPUS | {"rdma/bnxt": 8}), AMD, "amd-roce", "roce"
    ),
    "amd-tcp": Case(pair(amd("AMD_Instinct_MI210"), AMD_GPUS), AMD, "tcp-amd", "tcp"),
}
