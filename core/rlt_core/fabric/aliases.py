"""What each node label, resource, taint and machine name means. Facts are read from these names alone.

Sources: NFD https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/features.html; GFD
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md; AMD's labeller
https://github.com/ROCm/k8s-device-plugin/blob/master/cmd/k8s-node-labeller/main.go and amdgpu.ids beside it; RDMA
https://github.com/Mellanox/k8s-rdma-shared-dev-plugin; clouds as given at each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rlt_api.spec.accelerators import GPU_RESOURCES as GPU_RESOURCES
from rlt_api.spec.accelerators import MIG_RESOURCE as MIG_RESOURCE

# --- accelerators ---------------------------------------------------------------------------------------------------
VENDOR_LABELS: Final = {
    "nvidia.com/gpu.product": "nvidia",
    "nvidia.com/gpu.present": "nvidia",
    "amd.com/gpu.product-name": "amd",
    "amd.com/gpu.device-id": "amd",
    "beta.amd.com/gpu.product-name": "amd",
    "beta.amd.com/gpu.device-id": "amd",
    "feature.node.kubernetes.io/amd-gpu": "amd",
}
"""Labels that only nodes with GPUs of this vendor have (GFD; AMD's labeller; the NFD rule of AMD's GPU Operator)."""

PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "amd.com/gpu.device-id",
    "beta.amd.com/gpu.device-id",
    "cloud.google.com/gke-accelerator",
)
AMD_COUNTED: Final = re.compile(r"^(?:beta\.)?amd\.com/gpu\.(product-name|device-id)\.([A-Za-z0-9_-]+)$")
"""AMD's labels with the number of GPUs as their value: beta.amd.com/gpu.device-id.74a1=8."""
AMD_DEVICES: Final = {
    "7408": "MI250X",
    "740c": "MI250",
    "740f": "MI210",
    "74a0": "MI300A",
    "74a1": "MI300X",
    "74a2": "MI308X",
    "74a5": "MI325X",
    "74a9": "MI300X",
    "74b5": "MI300X",
    "74b9": "MI325X",
    "75a0": "MI350X",
    "75a3": "MI355X",
    "75b0": "MI350X",
    "75b3": "MI355X",
}
PRODUCT: Final = re.compile(
    r"(?:^|[-_ ])(GB300|GB200|GH200|B300|B200|H200|H100|H800|H20|A100|A800|A10G|A10|L40S|L40|L4|T4|V100|"
    r"MI[0-9]{3}[AX]?)(?=$|[-_ ])",
    re.IGNORECASE,
)
"""The model in a vendor's product name: NVIDIA-H100-80GB-HBM3, A100-SXM4-40GB-MIG-1g.5gb, AMD_Instinct_MI300X_OAM."""

GPU_PART: Final = re.compile(r"^(?:nvidia\.com/(?:mig-|gpu\.shared)|amd\.com/(?:spx|dpx|tpx|qpx|cpx)(?:_|$))")
"""Resources of MIG slices, shared GPUs and AMD's partitions: https://github.com/ROCm/k8s-device-plugin (mixed)."""
COUNT_LABEL: Final = "nvidia.com/gpu.count"
"""Number of GPUs of the node or, with the MIG strategy single, of slices (GFD)."""
GPU_HARDWARE_LABELS: Final = {
    "nvidia": (
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.product",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "cloud.google.com/gke-accelerator",
    ),
    "amd": (
        "feature.node.kubernetes.io/amd-gpu",
        "amd.com/gpu.product-name",
        "amd.com/gpu.device-id",
        "beta.amd.com/gpu.product-name",
        "beta.amd.com/gpu.device-id",
        "feature.node.kubernetes.io/pci-1200_1002.present",
    ),
}
"""Vendor -> labels of nodes with its GPUs, also without a device plugin. PCI class 0302 is a 3D controller, 1200 an
accelerator; 10de is NVIDIA, 1002 AMD."""
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
SHARED_SUFFIX: Final = "-SHARED"
MIG_INFIX: Final = "-MIG-"
CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""ClusterUUID.CliqueID of the node's NVLink domain."""
DRIVER_LABELS: Final = (
    "nvidia.com/cuda.driver-version.full",
    "amd.com/gpu.driver-version",
    "beta.amd.com/gpu.driver-version",
)
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""Memory of one GPU or, with the MIG strategy single, of one slice, in MiB (GFD)."""
ARCHITECTURE_LABEL: Final = "kubernetes.io/arch"
"""amd64 or arm64, set by the kubelet."""
OLD_DRIVER_LABELS: Final = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))

# --- network --------------------------------------------------------------------------------------------------------
EFA_RESOURCE: Final = "vpc.amazonaws.com/efa"
VERBS_RESOURCES: Final = (
    "rdma/",  # the prefix of k8s-rdma-shared-dev-plugin; CoreWeave's and AKS's rdma/ib
    "nvidia.com/hostdev",  # NVIDIA Network Operator, host device
    "nvidia.com/mlnxnics",
    "nvidia.com/rdma",  # rdma-vf on OKE, rdma_shared_device_*
    "nvidia.com/sriov",
    "nvidia.com/resibs",  # SR-IOV InfiniBand in NVIDIA's quick start
    "mellanox.com/",
    "openshift.io/mlnx",
    "amd.com/nic",  # AMD Network Operator
    "amd.com/vnic",
)
"""Prefixes of extended resources that mount verbs devices. The admin chooses the names."""
SITE_VERBS: Final = re.compile(
    r"^[a-z0-9.-]+/(?:.*(?:rdma|roce|infiniband|connectx|mlnx|mlx[0-9])"  # anywhere in the name
    r"|(?:.*[_.-])?(?:hca|ib|mlx|rail)[_.-]?[0-9]*(?:[_.-]|$)"  # as a word
    r"|(?:.*[_.-])?ib[ps][0-9]"  # a name of Linux: ibp12s0
    r"|.*rail[_.-]?[0-9])",
    re.IGNORECASE | re.DOTALL,
)
"""Names of such resources in a domain of the site, or with one resource for each rail: example.com/gpurail0."""
STORAGE_NAME: Final = re.compile(
    r"/(?:[^/]*[_.-])?(?:storage|stor|nfs|lustre|mgmt|management|frontend)(?:[_.-]?[0-9]*)(?:[_.-]|$)", re.IGNORECASE
)
"""Names of resources for adapters of storage or management: rdma/ib_storage."""
NO_ADAPTER: Final = re.compile(
    r"^(?:nvidia\.com/(?:gpu|mig-)|amd\.com/(?:gpu|spx|dpx|tpx|qpx|cpx)|habana\.ai/|google\.com/tpu|gpu\.intel\.com/|"
    r"huawei\.com/|aws\.amazon\.com/neuron|vpc\.amazonaws\.com/|networking\.gke\.io\.networks/|koordinator\.sh/|"
    r"(?:[a-z.]+\.)?kube(?:rnetes|virt)\.io/|(?:smarter-devices|github\.com|squat\.ai)/fuse)"
)
"""Extended resources of others: accelerators, addresses, devices of virtual machines, FUSE."""
MELLANOX_NAME: Final = re.compile(
    r"^(?:nvidia\.com/(?!gpu|mig-)|mellanox\.com/|openshift\.io/mlnx)|mlnx|mlx[0-9]?|connectx", re.I
)
"""Resource names that prove adapters of NVIDIA (Mellanox): the domain of the vendor, or the name of the product."""
VIRTUAL_FUNCTIONS: Final = re.compile(r"(?:^|[/_.-])(?:vf|vnic|sriov)|sriov|resibs|rdma-vf")
"""Names of SR-IOV virtual functions. Pods use them through an additional network (Multus)."""
GKE_NETWORK: Final = re.compile(r"^networking\.gke\.io\.networks/(?!.*\.IP$)(.+)$")
"""Additional networks of a GKE node. Names that end in `.IP` count addresses."""
INFINIBAND_NAME: Final = re.compile(r"(?:^|[/_.-])(?:ib|ib[ps][0-9]+s[0-9]+|infiniband|ipoib|resibs?)(?:[/_.-]|\d|$)")
ROCE_NAME: Final = re.compile(r"(?:^|[/_.-])(?:roce(?:v2)?|eth|ethernet)(?:[/_.-]|\d|$)")
"""Resource names, chosen by the admin, that identify the link."""

NIC_LABELS: Final = {
    "feature.node.kubernetes.io/pci-0207_15b3.present": "infiniband",
    "feature.node.kubernetes.io/pci-0200_15b3.present": "roce",
    "feature.node.kubernetes.io/pci-0200_14e4.present": "roce",
    "feature.node.kubernetes.io/pci-0200_1dd8.present": "roce",
}
"""PCI class 0207 is an InfiniBand controller, 0200 Ethernet; 15b3 NVIDIA/Mellanox, 14e4 Broadcom, 1dd8 AMD Pensando.
NFD sets these labels only if an admin enabled these classes. An Ethernet port next to InfiniBand may be a management
port, so roce counts only without an infiniband label."""
RDMA_LABELS: Final = (
    "feature.node.kubernetes.io/pci-15b3.present",
    "feature.node.kubernetes.io/pci-0207_15b3.present",
    "feature.node.kubernetes.io/pci-0200_15b3.present",
    "feature.node.kubernetes.io/rdma.available",
    "feature.node.kubernetes.io/rdma.capable",
    "feature.node.kubernetes.io/custom-rdma.available",
    "feature.node.kubernetes.io/custom-rdma.capable",
    "network.nvidia.com/operator.mofed.wait",
    "feature.node.kubernetes.io/amd-nic",
    "feature.node.kubernetes.io/pci-1dd8.present",
)
"""Labels of nodes with RDMA hardware or modules. They show neither the link type nor whether pods have access."""
MOFED_LABEL: Final = "network.nvidia.com/operator.mofed.wait"
"""The label of NVIDIA's Network Operator on nodes with adapters of NVIDIA."""
MELLANOX: Final = tuple(f"feature.node.kubernetes.io/pci-{device}15b3.present" for device in ("", "0207_", "0200_"))
PENSANDO: Final = (
    "feature.node.kubernetes.io/pci-0200_1dd8.present",
    "feature.node.kubernetes.io/pci-1dd8.present",
    "feature.node.kubernetes.io/amd-nic",
)
FLAVOR_LABEL: Final = "backend.coreweave.cloud/flavor"
"""infiniband or roce: https://docs.coreweave.com/products/networking/hpc-interconnect/infiniband-roce-labels"""

DRANET_LABEL: Final = "cloud.google.com/gke-networking-dra-driver"
"""Nodes whose network interfaces pods claim by DRA: https://cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra"""
GPU_DRA_LABELS: Final = ("nvidia.com/gpu.deploy.dra-driver", "cloud.google.com/gke-nvidia-gpu-dra-driver")
"""Nodes on which NVIDIA's DRA driver runs: NVIDIA's GPU Operator, GKE."""
DRA_LABELS: Final = {
    DRANET_LABEL: "network interfaces (GKE's DRANET)",
    **dict.fromkeys(GPU_DRA_LABELS, "GPUs (NVIDIA's DRA driver)"),
}
"""What pods claim by DRA on nodes with these labels."""

# --- clouds ---------------------------------------------------------------------------------------------------------
PROVIDERS: Final = {"aws://": "aws", "gce://": "gke", "azure://": "azure", "ocid1.": "oracle", "nebius://": "nebius"}
"""Cloud by the prefix of spec.providerID. nebius:// is not verified."""
CLOUD_LABELS: Final = {
    "eks.amazonaws.com/": "aws",
    "k8s.amazonaws.com/": "aws",
    "topology.k8s.aws/": "aws",
    "karpenter.k8s.aws/": "aws",
    "sagemaker.amazonaws.com/": "aws",
    "cloud.google.com/": "gke",
    "kubernetes.azure.com/": "azure",
    "oci.oraclecloud.com/": "oracle",
    "backend.coreweave.cloud/": "coreweave",
    "ib.coreweave.cloud/": "coreweave",
    "node.coreweave.cloud/": "coreweave",
    "gpu.coreweave.cloud/": "coreweave",
    "nebius.com/": "nebius",  # not verified
    "node-role.together.ai/": "together",
}
"""Cloud by the prefix of labels that only this cloud sets."""
INSTANCE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ACCELERATOR_LABEL: Final = "cloud.google.com/gke-accelerator"

TOPOLOGY: Final = (
    CLIQUE_LABEL,
    "topology.kubernetes.io/zone",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    "oci.oraclecloud.com/rdma.hpc_island_id",
    "oci.oraclecloud.com/rdma.network_block_id",
    "oci.oraclecloud.com/rdma.local_block_id",
    "backend.coreweave.cloud/fabric",
    "backend.coreweave.cloud/leafgroup",
    "ib.coreweave.cloud/fabric",
    "ib.coreweave.cloud/leafgroup",
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/core",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-2",
    "accelerator.topograph.run/domain",
)
"""Topology labels: nodes with equal values are close to each other."""
NO_TOPOLOGY: Final = ("", "no-imds-data")
"""Values without information (OKE's labeler without metadata)."""

# --- health ---------------------------------------------------------------------------------------------------------
HEALTH_LABELS: Final = {
    "sagemaker.amazonaws.com/node-health-status": frozenset({"Schedulable"}),
}
"""Labels of health controllers, with the values that mean a healthy node. SageMaker HyperPod:
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-node-labels.html"""
UNHEALTHY_LABELS: Final = re.compile(r"^metricsexporter\.amd\.com\.gpu\.[0-9]+\.state$")
"""AMD's device metrics exporter: the state of one GPU; the value `unhealthy` counts. (Not verified.)"""
UNHEALTHY_CONDITIONS: Final = {"AcceleratedHardwareReady": "False", "GpuUnhealthy": "True", "GPUUnhealthy": "True"}
"""Conditions of health controllers and the status of an unhealthy node. The first is from EKS' node monitoring agent
(https://docs.aws.amazon.com/eks/latest/userguide/node-health.html); the others are not verified."""
HEALTH_TAINTS: Final = (
    "node.kubernetes.io/",  # not-ready, unreachable, memory-pressure, network-unavailable, ...
    "nvidia.com/gpu-error",
    "nvsentinel",
    "sagemaker.amazonaws.com/node-health-status",
    "node.cilium.io/agent-not-ready",
    "cloud.google.com/impending-node-termination",
    "amd-gpu-unhealthy",
    "AMD_GPU_Unhealthy",
)
"""Prefixes of unhealthy nodes' taints. Such nodes are excluded also with the effect PreferNoSchedule, and even if a
job tolerates every taint."""


def is_verbs(resource: str) -> bool:
    """Whether the extended resource mounts verbs devices, by its name."""
    if resource.startswith(VERBS_RESOURCES):
        return True
    return not resource.startswith("networking.gke.io.networks/") and SITE_VERBS.match(resource) is not None


def is_site_resource(resource: str) -> bool:
    """Whether only the name of the resource in a domain of the site shows that it mounts verbs devices."""
    return is_verbs(resource) and not resource.startswith(VERBS_RESOURCES)


def list_storage_resources(verbs: Iterable[str]) -> frozenset[str]:
    """The resources that are for storage or management by their names. Empty if all of them are."""
    names = frozenset(verbs)
    found = frozenset(filter(STORAGE_NAME.search, names))
    return found if found < names else frozenset()


def may_be_adapter(resource: str) -> bool:
    """Whether an extended resource may be an adapter of a fabric under a name without a meaning here."""
    return "/" in resource and not is_verbs(resource) and not NO_ADAPTER.match(resource)
