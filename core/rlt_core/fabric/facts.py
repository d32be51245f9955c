"""The facts of a node, with evidence. A label alone is not enough: what pods use must also be in allocatable."""

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
TOPOLOGY = frozenset(aliases.TOPOLOGY)
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
        aliases.MEMORY_LABEL,
        aliases.ARCHITECTURE_LABEL,
    )
)
"""Labels whose values matter. For labels with one of PREFIXES only the name matters, for TOPOLOGY only the presence."""


@dataclass(frozen=True)
class Facts:
    """The facts of one node. Nodes of one kind have equal facts: neither name nor location is part of them."""

    vendor: str
    """nvidia, amd or none."""
    product: str | None
    """Model such as H100 or MI300X."""
    gpus: int
    """Accelerators in allocatable, with MIG slices and shared GPUs counted as listed there."""
    slicing: str | None
    """How GPUs are divided: "MIG 1g.5gb", "time-slicing, 4 replicas", "mps, 2 replicas"."""
    cloud: str
    instance_type: str | None
    fabric: str
    """The fabric that pods can use, apart from MNNVL: infiniband, roce, efa, gib, tcpx, tcpxo or tcp."""
    hardware: str
    """The fabric of the hardware, which pods with a resourceClaim can use (network.attach: dra)."""
    mnnvl: bool
    """Whether NVLink connects nodes (MNNVL): a GB200 or GB300 in a clique."""
    nic: str | None
    """pensando for a NIC of AMD, mlx5 for one of NVIDIA, None if unknown."""
    resources: tuple[tuple[str, int], ...]
    """Extended resources of the fabric with their allocatable amount above 0, ordered by name."""
    topology: tuple[str, ...]
    """Topology labels of the node."""
    driver: str | None
    """Version of the accelerator's driver."""
    gpu_memory: int | None
    """Memory of one GPU in bytes. None if no label shows it."""
    architecture: str | None
    """amd64 or arm64. None if no label shows it."""
    dra: tuple[str, ...]
    """What pods claim by DRA on the node."""
    missing: str | None
    """What pods lack to use the fabric of the hardware. None if they lack nothing."""
    assumption: str | None
    """What is assumed without evidence. None if nothing is."""
    contradictions: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    @property
    def verbs(self) -> tuple[tuple[str, int], ...]:
        """The resources that mount verbs devices."""
        return tuple((name, count) for name, count in self.resources if aliases.is_verbs(name))


def detect_facts(nodes: Iterable[Node]) -> dict[str, Facts]:
    """Detect the facts of each node, by node name. Nodes with equal inputs are evaluated once."""
    detected: dict[Hashable, Facts] = {}
    found = {}
    for node in nodes:
        inputs = _get_fact_inputs(node)
        if inputs not in detected:
            detected[inputs] = detect_node_facts(node)
        found[node.name] = detected[inputs]
    return found


def _get_fact_inputs(node: Node) -> Hashable:
    """All fields of the node that its facts depend on."""
    labels = node.labels
    return (
        frozenset((key, labels[key]) for key in labels.keys() & EXACT),
        frozenset(key for key in labels.keys() & TOPOLOGY if labels[key] not in aliases.NO_TOPOLOGY),
        frozenset(key for key in labels if _has_known_prefix(key)),
        frozenset(node.allocatable.items()),
        node.provider_id.partition("://")[0][:6],
    )


@lru_cache(maxsize=4096)
def _has_known_prefix(key: str) -> bool:
    return key.startswith(PREFIXES)


def infer_declared_facts(demand: Demand) -> Facts:
    """Infer the facts of a node pool without nodes from the instance type in its nodeSelector and the resources in the
    podTemplate of the job.
    """
    labels = demand.node_selector or {}
    machine = _find_machine(labels)
    offered = dict.fromkeys(demand.other_resources, 1)
    if demand.resource:
        offered[demand.resource] = max(demand.count, machine.gpus) if machine else demand.count
    if machine:
        offered.update(machine.resources)
        if machine.needs:
            offered[f"{machine.needs}ib"] = machine.gpus
    if aliases.FLAVOR_LABEL in labels:
        offered["rdma/ib"] = 1
    provider = next((prefix for prefix, cloud in aliases.PROVIDERS.items() if machine and machine.cloud == cloud), "")
    found = detect_node_facts(Node("", labels=labels, allocatable=offered, provider_id=provider))
    evidence = tuple(item for item in found.evidence if item.source.startswith("label "))
    if machine:
        evidence = (Evidence("declared", machine.type, f"no node exists; {machine.source}"), *evidence)
    return replace(found, evidence=evidence)


def detect_node_facts(node: Node) -> Facts:
    """Detect the facts of one node."""
    labels = node.labels
    evidence: list[Evidence] = []
    contradictions: list[str] = []
    gpus = sum(node.allocatable.get(name, 0) for name in aliases.GPU_RESOURCES)
    gpus += sum(count for name, count in node.allocatable.items() if name.startswith(aliases.MIG_RESOURCE))
    resources = list_fabric_resources(node)
    machine = _find_machine(labels)
    if machine and not (gpus == machine.gpus or resources or _find_clouds(node) or _find_products(labels, None)):
        machine = None  # the instance type alone is not enough evidence

    vendor = resolve_fact("vendor", _find_vendors(node, machine), evidence, contradictions) or "none"
    product = resolve_fact("product", _find_products(labels, machine), evidence, contradictions)
    cloud = resolve_fact("cloud", _find_clouds(node), evidence, contradictions) or ON_PREMISES
    if machine and cloud not in (machine.cloud, ON_PREMISES, "coreweave", "nebius", "together"):
        contradictions.append(
            f"instance type {find_instance_type(labels)} belongs to {machine.cloud}, but labels belong to {cloud}"
        )
    if machine and cloud == ON_PREMISES:
        cloud = machine.cloud
    slicing = _detect_slicing(node, evidence)
    evidence += [Evidence("resource", f"{name}={count}", "allocatable") for name, count in resources]
    driver = resolve_fact("driver", _find_drivers(labels), evidence, [])
    dra_labels = [(key, what) for key, what in aliases.DRA_LABELS.items() if labels.get(key) == "true"]
    evidence += [Evidence("dra", what, f"label {key}=true") for key, what in dra_labels]
    detected = detect_fabric(node, cloud, machine, resources, evidence, contradictions)
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
        fabric=detected.fabric,
        hardware=detected.hardware or detected.fabric,
        mnnvl=mnnvl,
        nic=detect_nic(node),
        resources=resources,
        topology=tuple(key for key in aliases.TOPOLOGY if labels.get(key, "") not in aliases.NO_TOPOLOGY),
        driver=driver,
        gpu_memory=_parse_memory(labels.get(aliases.MEMORY_LABEL, "")),
        architecture=labels.get(aliases.ARCHITECTURE_LABEL) or None,
        dra=tuple(what for _, what in dra_labels),
        missing=detected.missing,
        assumption=detected.assumption,
        contradictions=tuple(contradictions),
        evidence=tuple(sorted(evidence, key=str)),
    )


def find_instance_type(labels: Mapping[str, str]) -> str | None:
    """The instance type or shape. None on machines without one."""
    return next((labels[key] for key in aliases.INSTANCE_LABELS if labels.get(key)), None)


def _find_machine(labels: Mapping[str, str]) -> Machine | None:
    instance = find_instance_type(labels)
    return find_machine(instance) if instance else None


def _find_vendors(node: Node, machine: Machine | None) -> list[Evidence]:
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
    if machine:
        found.append(Evidence("vendor", machine.vendor, f"instance type {machine.type}"))
    return found


def _find_products(labels: Mapping[str, str], machine: Machine | None) -> list[Evidence]:
    found = []
    for key in aliases.PRODUCT_LABELS:
        if (value := labels.get(key)) and (name := _parse_product(value)):
            found.append(Evidence("product", name, f"label {key}={value}"))
    for key in labels:
        if "amd.com/gpu." in key and (match := aliases.AMD_COUNTED.match(key)) and (name := _parse_product(match[2])):
            found.append(Evidence("product", name, f"label {key}"))
    if machine:
        found.append(Evidence("product", machine.product, f"instance type {machine.type}"))
    return found


@cache
def _parse_product(text: str) -> str | None:
    if device := aliases.AMD_DEVICES.get(text.lower().removeprefix("0x")):
        return device
    match = aliases.PRODUCT.search(text)
    return match[1].upper() if match else None


def _parse_memory(mebibytes: str) -> int | None:
    return int(mebibytes) * 2**20 or None if mebibytes.isdecimal() else None


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
        source = f"label {aliases.SHARING_LABEL}={sharing}" if sharing != "none" else "shared resource or product name"
        evidence.append(Evidence("slicing", how, source))
    return " and ".join(parts) or None


def _find_drivers(labels: Mapping[str, str]) -> list[Evidence]:
    found = [Evidence("driver", labels[key], f"label {key}") for key in aliases.DRIVER_LABELS if labels.get(key)]
    if old := [labels[key] for key in aliases.OLD_DRIVER_LABELS if labels.get(key)]:
        found.append(Evidence("driver", ".".join(old), f"labels {aliases.OLD_DRIVER_LABELS[0]}, ..."))
    return found
