"""Pools of 12 kinds of nodes, with the labels and resources that their clouds and operators publish."""

from __future__ import annotations

from fabric.node_builders import (
    AMD_GPUS,
    GPUS,
    HCA,
    IB,
    NFD,
    TYPE,
    Manifest,
    amd,
    aws,
    azure,
    gke,
    node,
    nvidia,
    oracle,
    pair,
)

DRIVER = "nvidia.com/cuda.driver-version.full"
NEW = {DRIVER: "580.95.05"}
MI355X = amd("AMD_Instinct_MI355X") | {f"{NFD}/pci-0200_1dd8.present": "true"}


def with_labels(nodes: list[Manifest], labels: dict[str, str]) -> list[Manifest]:
    """The nodes with more labels."""
    for each in nodes:
        each["metadata"]["labels"] |= labels
    return nodes


NODE_KINDS: dict[str, list[Manifest]] = {
    "hgx-h100": pair(nvidia(**NEW) | IB, GPUS | HCA),
    "gke-a3-mega": gke("a3-megagpu-8g", "nvidia-h100-mega-80gb", [f"vpc{number}" for number in range(1, 9)]),
    "eks-p5": with_labels(aws("p5.48xlarge", 32), NEW),
    "eks-p5-without-efa-plugin": with_labels(aws("p5.48xlarge", 0), NEW),
    "aks-nd-h100": azure("Standard_ND96isr_H100_v5", GPUS | {"rdma/ib": 8}, nvidia(**NEW)),
    "oke-h100": oracle("BM.GPU.H100.8", GPUS, nvidia(**NEW)),
    "coreweave-h100": pair(
        nvidia(**NEW) | {"backend.coreweave.cloud/flavor": "infiniband", "backend.coreweave.cloud/leafgroup": "1"},
        GPUS | {"rdma/ib": 1},
    ),
    "l4": pair(nvidia("NVIDIA-L4", **NEW) | {TYPE: "g6.xlarge", "nvidia.com/gpu.count": "1"}, {"nvidia.com/gpu": 1}),
    "a100-old-driver": pair(nvidia("NVIDIA-A100-SXM4-80GB", **{DRIVER: "550.127.05"}) | IB, GPUS | HCA),
    "mi300x": azure("Standard_ND96isr_MI300X_v5", AMD_GPUS | {"rdma/ib": 8}, amd()),
    "mi355x": pair(MI355X, AMD_GPUS | {"amd.com/nic": 8}),
    "cpu": [node("cpu-1", {TYPE: "m7i.8xlarge"}, {})],
    "dra-alone": pair({"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.dra-driver": "true"} | IB, {}),
}
