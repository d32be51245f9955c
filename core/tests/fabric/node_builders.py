"""Builders of nodes, with the labels of clouds, NFD, and the operators of NVIDIA and AMD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]
NFD = "feature.node.kubernetes.io"
TYPE = "node.kubernetes.io/instance-type"
IB = {f"{NFD}/pci-0207_15b3.present": "true", f"{NFD}/pci-15b3.present": "true", f"{NFD}/rdma.available": "true"}
ROCE = {f"{NFD}/pci-0200_15b3.present": "true", f"{NFD}/pci-15b3.present": "true", f"{NFD}/rdma.available": "true"}
HCA = {"rdma/hca_shared_devices_a": 8}


def node(
    name: str,
    labels: Mapping[str, str],
    allocatable: Mapping[str, int],
    *,
    ready: bool = True,
    conditions: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A Node as the API server returns it."""
    states = {"Ready": "True" if ready else "False", **(conditions or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"} | {k: str(v) for k, v in allocatable.items()},
            "conditions": [{"type": kind, "status": status} for kind, status in states.items()],
        },
    }


def pair(labels: Mapping[str, str], allocatable: Mapping[str, int], **spec: Any) -> list[Manifest]:
    """Two equal nodes."""
    return [node(name, labels, allocatable, **spec) for name in ("node-1", "node-2")]


def nvidia(product: str = "NVIDIA-H100-80GB-HBM3", **more: str) -> dict[str, str]:
    """GFD's labels."""
    count = "4" if product.startswith("NVIDIA-GB") else "8"
    return {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product, "nvidia.com/gpu.count": count} | more


def amd(product: str = "AMD_Instinct_MI300X_OAM") -> dict[str, str]:
    """Labels of AMD's labeller, current form."""
    return {f"{NFD}/amd-gpu": "true", "amd.com/gpu.product-name": product, "amd.com/gpu.driver-version": "6.10.5"}


GPUS = {"nvidia.com/gpu": 8}
AMD_GPUS = {"amd.com/gpu": 8}


def aws(kind: str, efa: int, product: str = "NVIDIA-H100-80GB-HBM3") -> list[Manifest]:
    labels = nvidia(product) | {TYPE: kind, "k8s.io/cloud-provider-aws": "x", "eks.amazonaws.com/nodegroup": "gpu"}
    labels["topology.k8s.aws/network-node-layer-1"] = "nn-1"
    return pair(labels, GPUS | {"vpc.amazonaws.com/efa": efa}, providerID="aws:///us-east-1a/i-1")


def gke(
    kind: str, accelerator: str, networks: list[str], gpus: int = 8, *, more: Mapping[str, str] | None = None
) -> list[Manifest]:
    labels = {
        TYPE: kind,
        "cloud.google.com/gke-accelerator": accelerator,
        "cloud.google.com/gke-nodepool": "p",
        **(more or {}),
    }
    offered = {"nvidia.com/gpu": gpus}
    for network in networks:
        offered |= {f"networking.gke.io.networks/{network}": 1, f"networking.gke.io.networks/{network}.IP": 1}
    return pair(labels, offered, providerID="gce://p/z/n")


def oracle(shape: str, offered: Mapping[str, int], labels: Mapping[str, str]) -> list[Manifest]:
    more = {TYPE: shape, "oci.oraclecloud.com/rdma.local_block_id": "4tjxbt4s6ua"}
    return pair({**labels, **more}, offered, providerID="ocid1.instance.oc1.x")


def azure(size: str, offered: Mapping[str, int], labels: Mapping[str, str]) -> list[Manifest]:
    more = {TYPE: size, "kubernetes.azure.com/agentpool": "gpu", f"{NFD}/pci-15b3.present": "true"}
    return pair({**labels, **more}, offered, providerID="azure:///subscriptions/x")
