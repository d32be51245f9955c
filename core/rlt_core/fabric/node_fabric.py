"""The fabric that the pods of a node can use. Allocatable decides; labels and instance type identify the link."""

from __future__ import annotations

from rlt_core.fabric import aliases
from rlt_core.fabric.evidence import Evidence, resolve_fact
from rlt_core.fabric.machines import Machine
from rlt_core.fabric.nodes import Node


def list_fabric_resources(node: Node) -> tuple[tuple[str, int], ...]:
    """The extended resources of the fabric with an amount above 0."""
    return tuple(
        (name, count)
        for name, count in sorted(node.allocatable.items())
        if count > 0
        and (
            name == aliases.EFA_RESOURCE
            or name.startswith(aliases.VERBS_RESOURCES)
            or aliases.GKE_NETWORK.match(name) is not None
        )
    )


def detect_fabric(
    node: Node,
    cloud: str,
    machine: Machine | None,
    resources: tuple[tuple[str, int], ...],
    evidence: list[Evidence],
    contradictions: list[str],
) -> tuple[str, str | None, str | None]:
    """The fabric that pods can use, what they lack to use a faster one, and the assumption made. Extends `evidence` and
    `contradictions`.
    """
    names = [name for name, _ in resources]
    verbs = [name for name in names if name.startswith(aliases.VERBS_RESOURCES)]
    if aliases.EFA_RESOURCE in names:
        evidence.append(Evidence("fabric", "efa", f"allocatable {aliases.EFA_RESOURCE}"))
        return "efa", None, None
    if machine:
        evidence.append(Evidence("fabric", machine.fabric, f"instance type {machine.type} ({machine.source})"))
        if machine.fabric == "efa":
            return "tcp", f"{aliases.EFA_RESOURCE} from the EFA device plugin of AWS", None
        if machine.needs and not verbs:
            return "tcp", f"a resource {machine.needs}... from an RDMA device plugin", None
        if machine.cloud == "gke" and not names:
            if node.labels.get(aliases.DRANET_LABEL) == "true":
                fix = "a resourceClaim in the podTemplate of the workers and network.attach: dra"
                return machine.fabric, f"{fix}, because these nodes have DRANET", None
            networks = "networking.gke.io.networks/... from GKE multi-networking"
            return machine.fabric, f"{networks} (or DRANET with network.attach: dra)", None
        return machine.fabric, None, None
    if cloud == "gke" and (accelerator := node.labels.get(aliases.ACCELERATOR_LABEL)):
        evidence.append(Evidence("accelerator", accelerator, f"label {aliases.ACCELERATOR_LABEL}"))
        return "tcp", f"the label {aliases.INSTANCE_LABELS[0]}: one label alone is not enough evidence", None
    links = _find_links(node, verbs)
    link = resolve_fact("fabric", links, evidence, contradictions)
    rdma_labels = [key for key in aliases.RDMA_LABELS if node.labels.get(key, "false") == "true"]
    evidence += [Evidence("rdma", "hardware", f"label {key}=true") for key in rdma_labels]
    hardware = bool(link or rdma_labels)
    if cloud in ("nebius", "together") and not verbs and hardware:
        return "infiniband", None, f"{cloud} attaches InfiniBand without a resource (as in SkyPilot; not verified)"
    if not verbs:
        return "tcp", "an RDMA resource in allocatable from an RDMA or SR-IOV device plugin" if hardware else None, None
    if link:
        return link, None, None
    if cloud in ("nebius", "together", "azure"):
        return "infiniband", None, None
    if node.allocatable.get("amd.com/nic", 0) + node.allocatable.get("amd.com/vnic", 0) > 0:
        return "roce", None, None
    assumption = "no label or resource shows whether the RDMA link is InfiniBand or Ethernet: InfiniBand is assumed"
    return "infiniband", None, assumption


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
    return "mlx5" if any(node.labels.get(key) == "true" for key in aliases.MELLANOX) else None
