"""The fabric that the pods of a node can use. Allocatable decides; labels and instance type identify the link."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_core.fabric import aliases
from rlt_core.fabric.evidence import Evidence, resolve_fact
from rlt_core.fabric.machines import Machine
from rlt_core.fabric.nodes import Node

CLAIM = "a resourceClaim of a DRA driver in the podTemplate of the workers, with network.attach: dra"


@dataclass(frozen=True)
class DetectedFabric:
    """The fabric of a node."""

    fabric: str
    """The fabric that pods can use."""
    missing: str | None = None
    """What pods lack to use a faster one."""
    assumption: str | None = None
    """What is assumed without evidence."""
    hardware: str | None = None
    """The fabric of the hardware, if it differs."""


def list_fabric_resources(node: Node) -> tuple[tuple[str, int], ...]:
    """The extended resources of the fabric with an amount above 0."""
    return tuple(
        (name, count)
        for name, count in sorted(node.allocatable.items())
        if count > 0
        and (name == aliases.EFA_RESOURCE or aliases.is_verbs(name) or aliases.GKE_NETWORK.match(name) is not None)
    )


def detect_fabric(
    node: Node,
    cloud: str,
    machine: Machine | None,
    resources: tuple[tuple[str, int], ...],
    evidence: list[Evidence],
    contradictions: list[str],
) -> DetectedFabric:
    """Detect the fabric of a node. Extends `evidence` and `contradictions`."""
    names = [name for name, _ in resources]
    verbs = [name for name in names if aliases.is_verbs(name)]
    if aliases.EFA_RESOURCE in names:
        evidence.append(Evidence("fabric", "efa", f"allocatable {aliases.EFA_RESOURCE}"))
        return DetectedFabric("efa")
    if machine:
        evidence.append(Evidence("fabric", machine.fabric, f"instance type {machine.type} ({machine.source})"))
        if machine.fabric == "efa":
            plugin = f"{aliases.EFA_RESOURCE} from the EFA device plugin of AWS"
            return DetectedFabric("tcp", f"{plugin}, or {CLAIM}", hardware="efa")
        if machine.needs and not verbs:
            plugin = f"a resource {machine.needs}... from an RDMA device plugin"
            return DetectedFabric("tcp", f"{plugin}, or {CLAIM}", hardware=machine.fabric)
        if machine.cloud == "gke" and not names:
            if node.labels.get(aliases.DRANET_LABEL) == "true":
                fix = "a resourceClaim in the podTemplate of the workers and network.attach: dra"
                return DetectedFabric(machine.fabric, f"{fix}, because these nodes have DRANET")
            networks = "networking.gke.io.networks/... from GKE multi-networking"
            return DetectedFabric(machine.fabric, f"{networks} (or DRANET with network.attach: dra)")
        return DetectedFabric(machine.fabric)
    if cloud == "gke" and (accelerator := node.labels.get(aliases.ACCELERATOR_LABEL)):
        evidence.append(Evidence("accelerator", accelerator, f"label {aliases.ACCELERATOR_LABEL}"))
        return DetectedFabric("tcp", f"the label {aliases.INSTANCE_LABELS[0]}: one label alone is not enough evidence")
    storage = aliases.list_storage_resources(verbs)
    links = _find_links(node, [name for name in verbs if name not in storage])
    link = resolve_fact("fabric", links, evidence, contradictions)
    rdma_labels = [key for key in aliases.RDMA_LABELS if node.labels.get(key, "false") == "true"]
    evidence += [Evidence("rdma", "hardware", f"label {key}=true") for key in rdma_labels]
    hardware = bool(link or rdma_labels)
    if cloud in ("nebius", "together") and not verbs and hardware:
        assumption = f"{cloud} attaches InfiniBand without a resource (as in SkyPilot; not verified)"
        return DetectedFabric("infiniband", assumption=assumption)
    if not verbs and hardware:
        plugin = "an RDMA resource in allocatable from an RDMA or SR-IOV device plugin"
        assumed = "infiniband" if cloud == "azure" or not link else link
        return DetectedFabric("tcp", f"{plugin}, or {CLAIM}", hardware=assumed)
    if not verbs:
        return DetectedFabric("tcp")
    if link:
        return DetectedFabric(link)
    if cloud in ("nebius", "together", "azure"):
        return DetectedFabric("infiniband")
    if node.allocatable.get("amd.com/nic", 0) + node.allocatable.get("amd.com/vnic", 0) > 0:
        return DetectedFabric("roce")
    assumption = "no label or resource shows whether the RDMA link is InfiniBand or Ethernet: InfiniBand is assumed"
    return DetectedFabric("infiniband", assumption=assumption)


def _find_links(node: Node, verbs: list[str]) -> list[Evidence]:
    """Evidence for InfiniBand or RoCE: the label of the cloud, then the names of resources, then PCI classes."""
    found = []
    if flavor := node.labels.get(aliases.FLAVOR_LABEL):
        found.append(Evidence("fabric", flavor.lower(), f"label {aliases.FLAVOR_LABEL}={flavor}"))
    for name in verbs:
        if flavor and name == "rdma/ib":
            continue  # CoreWeave uses this name for RoCE too
        if aliases.INFINIBAND_NAME.search(name):
            found.append(Evidence("fabric", "infiniband", f"the name of {name}"))
        elif aliases.ROCE_NAME.search(name):
            found.append(Evidence("fabric", "roce", f"the name of {name}"))
    pci = {link: key for key, link in aliases.NIC_LABELS.items() if node.labels.get(key) == "true"}
    if "infiniband" in pci:
        found.append(Evidence("fabric", "infiniband", f"label {pci['infiniband']}=true"))
    elif "roce" in pci and not any(item.value == "infiniband" for item in found if "name of" not in item.source):
        found.append(Evidence("fabric", "roce", f"label {pci['roce']}=true"))
    return found


def detect_nic(node: Node) -> str | None:
    """pensando for a NIC of AMD, mlx5 for one of NVIDIA, None if unknown."""
    offered = node.allocatable.get("amd.com/nic", 0) + node.allocatable.get("amd.com/vnic", 0)
    if offered > 0 or any(node.labels.get(key, "false") == "true" for key in aliases.PENSANDO):
        return "pensando"
    names = [name for name, count in node.allocatable.items() if count > 0 and aliases.is_verbs(name)]
    labeled = any(node.labels.get(key) == "true" for key in aliases.MELLANOX) or aliases.MOFED_LABEL in node.labels
    return "mlx5" if labeled or any(map(aliases.MELLANOX_NAME.search, names)) else None
