"""Which fabric the pods of a node can use: what is in allocatable decides, labels and instance type say what it is."""

from __future__ import annotations

from rlt_core.fabric import aliases
from rlt_core.fabric.evidence import Evidence, resolve_fact
from rlt_core.fabric.machines import Machine
from rlt_core.fabric.nodes import Node


def list_fabric_resources(node: Node) -> tuple[tuple[str, int], ...]:
    """The fabric's extended resources with an amount above 0: a quantity of 0 is not availability."""
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
    kind: Machine | None,
    resources: tuple[tuple[str, int], ...],
    evidence: list[Evidence],
    contradictions: list[str],
) -> tuple[str, str | None, str | None]:
    """What pods can use, what is missing for more, and what was assumed. Adds the witnesses to `evidence`."""
    names = [name for name, _ in resources]
    verbs = [name for name in names if name.startswith(aliases.VERBS_RESOURCES)]
    if aliases.EFA_RESOURCE in names:
        evidence.append(Evidence("fabric", "efa", f"allocatable {aliases.EFA_RESOURCE}"))
        return "efa", None, None
    if kind:
        evidence.append(Evidence("fabric", kind.fabric, f"instance type {kind.type} ({kind.source})"))
        if kind.fabric == "efa":
            return "tcp", f"{aliases.EFA_RESOURCE}, of AWS' EFA device plugin", None
        if kind.needs and not verbs:
            return "tcp", f"a resource {kind.needs}..., of an RDMA device plugin", None
        if kind.cloud == "gke" and not names:
            if node.labels.get(aliases.DRANET_LABEL) == "true":
                item = "a resourceClaim in the workers' podTemplate and network.attach: dra"
                return kind.fabric, f"{item}, since these nodes have DRANET", None
            networks = "networking.gke.io.networks/..., of GKE's multi-networking"
            return kind.fabric, f"{networks} (or DRANET with network.attach: dra)", None
        return kind.fabric, None, None
    if cloud == "gke" and (accelerator := node.labels.get(aliases.ACCELERATOR_LABEL)):
        evidence.append(Evidence("accelerator", accelerator, f"label {aliases.ACCELERATOR_LABEL}"))
        return "tcp", f"the label {aliases.INSTANCE_LABELS[0]}: one label alone is not believed", None
    links = _find_links(node, verbs)
    said = resolve_fact("fabric", links, evidence, contradictions)
    witnesses = [key for key in aliases.RDMA_LABELS if node.labels.get(key, "false") == "true"]
    evidence += [Evidence("rdma", "hardware", f"label {key}=true") for key in witnesses]
    hardware = bool(said or witnesses)
    if cloud in ("nebius", "together") and not verbs and hardware:
        return "infiniband", None, f"{cloud} attaches InfiniBand without a resource (SkyPilot does so; not verified)"
    if not verbs:
        return "tcp", "an RDMA resource in allocatable, of an RDMA or SR-IOV device plugin" if hardware else None, None
    if said:
        return said, None, None
    if cloud in ("nebius", "together", "azure"):
        return "infiniband", None, None
    if node.allocatable.get("amd.com/nic", 0) + node.allocatable.get("amd.com/vnic", 0) > 0:
        return "roce", None, None
    assumed = "no label or resource says whether the RDMA link is InfiniBand or Ethernet: InfiniBand is assumed"
    return "infiniband", None, assumed


def _find_links(node: Node, verbs: list[str]) -> list[Evidence]:
    """Who says InfiniBand or RoCE: the cloud's label, then what admins call the resource, then PCI classes."""
    found = []
    if flavor := node.labels.get(aliases.FLAVOR_LABEL):
        found.append(Evidence("fabric", flavor.lower(), f"label {aliases.FLAVOR_LABEL}={flavor}"))
    for name in verbs:
        if flavor and name == "rdma/ib":
            continue  # CoreWeave calls it so for RoCE too
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
    """pensando for AMD's own NIC, mlx5 for NVIDIA's, None where nothing says."""
    offered = node.allocatable.get("amd.com/nic", 0) + node.allocatable.get("amd.com/vnic", 0)
    if offered > 0 or any(node.labels.get(key, "false") == "true" for key in aliases.PENSANDO):
        return "pensando"
    return "mlx5" if any(node.labels.get(key) == "true" for key in aliases.MELLANOX) else None
