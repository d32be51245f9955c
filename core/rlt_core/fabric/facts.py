"""What is known of a node, and who says so. No label is believed alone: what pods use must be in allocatable too."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from rlt_core.fabric import aliases
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.evidence import Evidence, resolve_fact
from rlt_core.fabric.machines import Machine, find_machine
from rlt_core.fabric.node_fabric import detect_fabric, detect_nic, list_fabric_resources
from rlt_core.fabric.nodes import Node

ON_PREMISES = "on-premises"
CLOUD_PREFIXES = tuple(aliases.CLOUD_LABELS)
PREFIXES = (*CLOUD_PREFIXES, "amd.com/gpu.", "beta.amd.com/gpu.")
PLACES = frozenset(aliases.TOPOLOGY)
EXACT = frozenset(
    (
        *aliases.VENDOR_LABELS,
        *aliases.PRODUCT_LABELS,
        *aliases.DRIVER_LABELS,
        *aliases.OLD_DRIVER_LABELS,
        *aliases.NIC_LABELS,
        *aliases.RDMA_LABELS,
        *aliases.MELLANOX,
        *aliases.PENSANDO,
        *aliases.DRA_LABELS,
        *aliases.INSTANCE_LABELS,
        aliases.SHARING_LABEL,
        aliases.REPLICAS_LABEL,
        aliases.FLAVOR_LABEL,
        aliases.ACCELERATOR_LABEL,
    )
)
"""Labels whose values count; of those below PREFIXES only the names do, of PLACES whether there is a value."""


@dataclass(frozen=True)
class Facts:
    """What one node is. Nodes of one kind have equal facts: nothing here names a node or its place."""

    vendor: str
    """nvidia, amd or none."""
    product: str | None
    """Model such as H100 or MI300X."""
    gpus: int
    """Accelerators that the node offers, slices and shares counted as they are offered."""
    slicing: str | None
    """How GPUs are cut up: "MIG 1g.5gb", "time-slicing, 4 replicas", "mps, 2 replicas"."""
    cloud: str
    instance_type: str | None
    fabric: str
    """What pods can use, without MNNVL: infiniband, roce, efa, gib, tcpx, tcpxo or tcp."""
    mnnvl: bool
    """Whether NVLink reaches over nodes here: a GB200 or GB300 in a clique."""
    nic: str | None
    """pensando where AMD's own NIC is said, mlx5 where NVIDIA's is, else None."""
    resources: tuple[tuple[str, int], ...]
    """Extended resources of the fabric with what the node offers of them (more than 0), ordered by name."""
    topology: tuple[str, ...]
    """Labels that say where the node is."""
    driver: str | None
    """Version of the accelerator's driver."""
    dra: tuple[str, ...]
    """What is claimed by DRA here."""
    missing: str | None
    """What keeps pods from a fabric that the hardware has, None if nothing does."""
    assumption: str | None
    """What was assumed because nothing says it."""
    contradictions: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    @property
    def verbs(self) -> tuple[tuple[str, int], ...]:
        """The resources that bring verbs devices."""
        return tuple((name, count) for name, count in self.resources if name.startswith(aliases.VERBS_RESOURCES))


def detect_facts(nodes: Iterable[Node]) -> dict[str, Facts]:
    """The facts of each node, by its name. Nodes that say the same are read once."""
    read: dict[Hashable, Facts] = {}
    found = {}
    for node in nodes:
        said = _fact_inputs(node)
        if said not in read:
            read[said] = detect_node_facts(node)
        found[node.name] = read[said]
    return found


def _fact_inputs(node: Node) -> Hashable:
    """All of the node that facts are read from: nothing else changes them."""
    labels = node.labels
    return (
        frozenset((key, labels[key]) for key in labels.keys() & EXACT),
        frozenset(key for key in labels.keys() & PLACES if labels[key] not in aliases.NO_PLACE),
        frozenset(key for key in labels if _has_known_prefix(key)),
        frozenset(node.allocatable.items()),
        node.provider_id.partition("://")[0][:6],
    )


@lru_cache(maxsize=4096)
def _has_known_prefix(key: str) -> bool:
    return key.startswith(PREFIXES)


def infer_declared_facts(demand: Demand) -> Facts:
    """The facts of a pool without a node: what it offers once a node is there.

    They are those of the instance type in its nodeSelector, and whatever the job's podTemplate asks for.
    """
    labels = demand.node_selector or {}
    kind = _find_machine(labels)
    offered = dict.fromkeys(demand.other_resources, 1)
    if demand.resource:
        offered[demand.resource] = max(demand.count, kind.gpus) if kind else demand.count
    if kind:
        offered.update(kind.resources)
        if kind.needs:
            offered[f"{kind.needs}ib"] = kind.gpus
    if aliases.FLAVOR_LABEL in labels:
        offered["rdma/ib"] = 1
    provider = next((prefix for prefix, cloud in aliases.PROVIDERS.items() if kind and kind.cloud == cloud), "")
    found = detect_node_facts(Node("", labels=labels, allocatable=offered, provider_id=provider))
    evidence = tuple(item for item in found.evidence if item.source.startswith("label "))
    if kind:
        evidence = (Evidence("declared", kind.type, f"no node is alive; {kind.source}"), *evidence)
    return replace(found, evidence=evidence)


def detect_node_facts(node: Node) -> Facts:
    """The facts of one node."""
    labels = node.labels
    evidence: list[Evidence] = []
    contradictions: list[str] = []
    gpus = sum(node.allocatable.get(name, 0) for name in aliases.GPU_RESOURCES)
    gpus += sum(count for name, count in node.allocatable.items() if name.startswith(aliases.MIG_RESOURCE))
    resources = list_fabric_resources(node)
    kind = _find_machine(labels)
    if kind and not (gpus == kind.gpus or resources or _find_clouds(node) or _find_products(labels, None)):
        kind = None  # an instance type alone: nothing else on the node bears it out

    vendor = resolve_fact("vendor", _find_vendors(node, kind), evidence, contradictions) or "none"
    product = resolve_fact("product", _find_products(labels, kind), evidence, contradictions)
    cloud = resolve_fact("cloud", _find_clouds(node), evidence, contradictions) or ON_PREMISES
    if kind and cloud not in (kind.cloud, ON_PREMISES, "coreweave", "nebius", "together"):
        contradictions.append(
            f"instance type {find_instance_type(labels)} is of {kind.cloud}, but labels are of {cloud}"
        )
    if kind and cloud == ON_PREMISES:
        cloud = kind.cloud
    slicing = _detect_slicing(node, evidence)
    evidence += [Evidence("resource", f"{name}={count}", "allocatable") for name, count in resources]
    driver = resolve_fact("driver", _find_drivers(labels), evidence, [])
    dra_labels = [(key, what) for key, what in aliases.DRA_LABELS.items() if labels.get(key) == "true"]
    evidence += [Evidence("dra", what, f"label {key}=true") for key, what in dra_labels]
    link, missing, assumption = detect_fabric(node, cloud, kind, resources, evidence, contradictions)
    clique = labels.get(aliases.CLIQUE_LABEL, "")
    mnnvl = bool(clique and product in ("GB200", "GB300"))
    if mnnvl:
        evidence.append(Evidence("mnnvl", str(product), f"label {aliases.CLIQUE_LABEL}"))
    return Facts(
        vendor=vendor,
        product=product,
        gpus=gpus,
        slicing=slicing,
        cloud=cloud,
        instance_type=find_instance_type(labels),
        fabric=link,
        mnnvl=mnnvl,
        nic=detect_nic(node),
        resources=resources,
        topology=tuple(key for key in aliases.TOPOLOGY if labels.get(key, "") not in aliases.NO_PLACE),
        driver=driver,
        dra=tuple(what for _, what in dra_labels),
        missing=missing,
        assumption=assumption,
        contradictions=tuple(contradictions),
        evidence=tuple(sorted(evidence, key=str)),
    )


def find_instance_type(labels: Mapping[str, str]) -> str | None:
    """The instance type or shape, None on machines that have none."""
    return next((labels[key] for key in aliases.INSTANCE_LABELS if labels.get(key)), None)


def _find_machine(labels: Mapping[str, str]) -> Machine | None:
    instance = find_instance_type(labels)
    return find_machine(instance) if instance else None


def _find_vendors(node: Node, kind: Machine | None) -> list[Evidence]:
    offered = {vendor: name for name, vendor in aliases.GPU_RESOURCES.items() if node.allocatable.get(name, 0) > 0}
    for name, count in node.allocatable.items():
        if name.startswith(aliases.MIG_RESOURCE) and count > 0:
            offered.setdefault("nvidia", name)
    found = [Evidence("vendor", vendor, f"allocatable {name}") for vendor, name in sorted(offered.items())]
    for key, vendor in aliases.VENDOR_LABELS.items():
        if node.labels.get(key, "false") != "false":
            found.append(Evidence("vendor", vendor, f"label {key}={node.labels[key]}"))
    if any(aliases.AMD_COUNTED.match(key) for key in node.labels if "amd.com/gpu." in key):
        found.append(Evidence("vendor", "amd", "label (beta.)amd.com/gpu.<property>.<value>"))
    if kind:
        found.append(Evidence("vendor", kind.vendor, f"instance type {kind.type}"))
    return found


def _find_products(labels: Mapping[str, str], kind: Machine | None) -> list[Evidence]:
    found = []
    for key in aliases.PRODUCT_LABELS:
        if (value := labels.get(key)) and (name := _parse_product(value)):
            found.append(Evidence("product", name, f"label {key}={value}"))
    for key in labels:
        if "amd.com/gpu." in key and (match := aliases.AMD_COUNTED.match(key)) and (name := _parse_product(match[2])):
            found.append(Evidence("product", name, f"label {key}"))
    if kind:
        found.append(Evidence("product", kind.product, f"instance type {kind.type}"))
    return found


@cache
def _parse_product(text: str) -> str | None:
    if device := aliases.AMD_DEVICES.get(text.lower().removeprefix("0x")):
        return device
    match = aliases.PRODUCT.search(text)
    return match[1].upper() if match else None


def _find_clouds(node: Node) -> list[Evidence]:
    found: dict[str, Evidence] = {}
    for key in sorted(key for key in node.labels if key.startswith(CLOUD_PREFIXES)):
        prefix = next(prefix for prefix in CLOUD_PREFIXES if key.startswith(prefix))
        cloud = aliases.CLOUD_LABELS[prefix]
        found.setdefault(cloud, Evidence("cloud", cloud, f"labels {prefix}*"))
    for prefix, cloud in aliases.PROVIDERS.items():
        if node.provider_id.startswith(prefix):
            found.setdefault(cloud, Evidence("cloud", cloud, f"providerID {prefix}"))
    return list(found.values())


def _detect_slicing(node: Node, evidence: list[Evidence]) -> str | None:
    labels = node.labels
    product = labels.get("nvidia.com/gpu.product", "")
    sharing = labels.get(aliases.SHARING_LABEL, "none")
    shared = node.allocatable.get("nvidia.com/gpu.shared", 0) > 0 or product.endswith(aliases.SHARED_SUFFIX)
    parts = []
    mig = [name for name, count in node.allocatable.items() if name.startswith(aliases.MIG_RESOURCE) and count > 0]
    if mig:
        kinds = ", ".join(sorted(name.removeprefix(aliases.MIG_RESOURCE) for name in mig))
        parts.append(f"MIG {kinds}")
        evidence.append(Evidence("slicing", "MIG", f"allocatable {', '.join(sorted(mig))}"))
    elif aliases.MIG_INFIX in product:
        parts.append(f"MIG {product.partition(aliases.MIG_INFIX)[2].removesuffix(aliases.SHARED_SUFFIX)}")
        evidence.append(Evidence("slicing", "MIG", f"label nvidia.com/gpu.product={product}"))
    if sharing != "none" or shared:
        how = sharing if sharing != "none" else "time-slicing or mps"
        replicas = labels.get(aliases.REPLICAS_LABEL)
        parts.append(f"{how}, {replicas} replicas" if replicas else how)
        said = f"label {aliases.SHARING_LABEL}={sharing}" if sharing != "none" else "shared resource or product name"
        evidence.append(Evidence("slicing", how, said))
    return " and ".join(parts) or None


def _find_drivers(labels: Mapping[str, str]) -> list[Evidence]:
    found = [Evidence("driver", labels[key], f"label {key}") for key in aliases.DRIVER_LABELS if labels.get(key)]
    if old := [labels[key] for key in aliases.OLD_DRIVER_LABELS if labels.get(key)]:
        found.append(Evidence("driver", ".".join(old), f"labels {aliases.OLD_DRIVER_LABELS[0]}, ..."))
    return found
