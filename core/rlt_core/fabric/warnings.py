"""Warnings about nodes and variables. They do not hold the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rlt_core.fabric import aliases
from rlt_core.fabric.demand import MULTUS_ANNOTATION, Demand
from rlt_core.fabric.facts import Facts
from rlt_core.fabric.nodes import Node
from rlt_core.fabric.profiles import RDMA_FABRICS, Profile
from rlt_core.fabric.settings import Setting, Settings

NOSET = tuple(f"RAY_EXPERIMENTAL_NOSET_{name}_VISIBLE_DEVICES" for name in ("CUDA", "HIP", "ROCR"))
"""Variables that keep Ray from hiding devices (ray/_private/accelerators). vLLM copies them to its workers."""

GIB = 2**30
MEMORY_TOLERANCE = 1.1
"""Names of GPUs round up: an L40S of 48 GB has 45 GiB, a B200 of 192 GB 179 GiB."""


def find_warnings(kinds: Iterable[Facts], demand: Demand, profile: Profile, settings: Settings) -> list[str]:
    """Find the warnings, each once, in a fixed order."""
    facts = list(kinds)
    env = {setting.name: setting for setting in settings.env}
    return list(
        dict.fromkeys(
            [*_find_node_warnings(facts, demand, profile, settings), *_find_variable_warnings(facts, profile, env)]
        )
    )


def _find_node_warnings(kinds: list[Facts], demand: Demand, profile: Profile, settings: Settings) -> Iterator[str]:
    for facts in kinds:
        if facts.slicing:
            yield (
                f"{demand.resource} is not a whole GPU on these nodes but {facts.slicing}: NCCL between parts of "
                "one GPU fails or is slow; use whole GPUs for training"
            )
        if (
            facts.missing
            and demand.require != "tcp"
            and (profile.fabric == "tcp" or not (settings.attach.resources or demand.network_resources))
        ):
            claim = "; the podTemplate has a resourceClaim: if it is for RDMA, set network.attach: dra"
            by_claim = demand.has_resource_claims and demand.attach is None
            fix = claim if by_claim else ""
            yield f"the nodes have faster hardware than pods can use; missing: {facts.missing}{fix}"
        if facts.assumption and profile.fabric.endswith(facts.fabric) and demand.profile is None:
            yield f"{facts.assumption}; set network.profile to onprem-infiniband or onprem-roce to avoid the assumption"
        if facts.product in ("GB200", "GB300") and not facts.mnnvl:
            yield f"{facts.product} without the label nvidia.com/gpu.clique: multi-node NVLink is not used"
    if _may_claim_rdma(kinds, demand, profile):
        yield (
            "the podTemplate has a resourceClaim, and no label or resource of the nodes shows RDMA: if it is for "
            "RDMA, set network.attach: dra and network.profile; otherwise pods use TCP"
        )
    products = sorted({facts.product for facts in kinds if facts.product})
    if len(products) > 1:
        yield f"candidate nodes have different GPUs ({', '.join(products)}): the slowest determines the speed"
    drivers = sorted({facts.driver for facts in kinds if facts.driver})
    if demand.resource and len(drivers) > 1:
        yield f"candidate nodes have different drivers ({', '.join(drivers)}): the image must support the oldest"
    yield from _find_image_warnings(kinds)
    yield from _find_memory_warnings(kinds, demand)
    if settings.attach.mode == "multus" and not demand.has_network_annotation and demand.attach is None:
        yield (
            f"pods get virtual functions but no Multus network: set the annotation {MULTUS_ANNOTATION} in the "
            "podTemplate of the workers"
        )
    yield from _find_resource_warnings(kinds, profile, settings)


def _may_claim_rdma(kinds: list[Facts], demand: Demand, profile: Profile) -> bool:
    """Whether a claim of the podTemplate may be for RDMA that nothing else shows."""
    shown = any(facts.missing or facts.verbs for facts in kinds)
    asks = demand.resource is not None and demand.require != "tcp" and demand.attach is None
    return asks and demand.has_resource_claims and not shown and profile.fabric.removeprefix("mnnvl+") == "tcp"


def _find_image_warnings(kinds: list[Facts]) -> Iterator[str]:
    """An image without the architecture of the node ends with "exec format error" or is not pulled."""
    architectures = sorted({facts.architecture for facts in kinds if facts.architecture})
    if len(architectures) > 1:
        yield (
            f"candidate nodes have different architectures ({', '.join(architectures)}): use images of the job that "
            f"have all of them, or select one with nodeSelector {aliases.ARCHITECTURE_LABEL}"
        )
    elif architectures and architectures != ["amd64"]:
        yield f"the nodes are {architectures[0]}: the images of the job must have {architectures[0]}"


def _find_memory_warnings(kinds: list[Facts], demand: Demand) -> Iterator[str]:
    """The validation estimates memory with accelerator.memory, before any node is known."""
    measured = [facts.gpu_memory for facts in kinds if facts.gpu_memory]
    if demand.resource != "nvidia.com/gpu" or not demand.accelerator_memory or not measured:
        return
    if demand.accelerator_memory > MEMORY_TOLERANCE * min(measured):
        smallest = f"{min(measured) // GIB}Gi"
        yield (
            f"accelerator.memory is {demand.accelerator_memory / GIB:.3g}Gi, but GPUs of candidate nodes have "
            f"{smallest} (label {aliases.MEMORY_LABEL}): set accelerator.memory to {smallest}, or select other nodes"
        )


def _find_resource_warnings(kinds: list[Facts], profile: Profile, settings: Settings) -> Iterator[str]:
    """Which of several RDMA resources the pods get, and why."""
    given = dict(settings.attach.resources)
    verbs = [name for name in given if aliases.is_verbs(name)]
    if len(verbs) > 1:
        yield (
            f"pods get all of {', '.join(verbs)}, one rail or pool each: no name shows which of them is for storage; "
            "to leave one out, set it to null in limits and requests of ray-worker in the podTemplate"
        )
    for name in filter(aliases.is_site_resource, verbs):
        offered = max((dict(facts.resources).get(name, 0) for facts in kinds), default=0)
        if given[name] < offered:
            yield (
                f"pods get {given[name]} of {offered} {name}: if each is one adapter and not a share of all, set the "
                "amount in limits and requests of ray-worker in the podTemplate"
            )
    storage = {
        name for facts in kinds for name in aliases.list_storage_resources(each for each, _ in facts.verbs)
    } - set(given)
    if storage and verbs:
        yield (
            f"pods do not get {', '.join(sorted(storage))}, which by its name is for storage or management: to add "
            "it, set it in limits and requests of ray-worker in the podTemplate"
        )
    offered_names = sorted({name for facts in kinds for name, _ in facts.verbs} - set(given) - storage)
    if offered_names and verbs and profile.fabric.removeprefix("mnnvl+") in RDMA_FABRICS:
        yield (
            f"pods do not get {', '.join(offered_names)}: network.attach {settings.attach.mode} uses "
            f"{', '.join(verbs)} alone; set network.attach to change it"
        )


def find_unknown_resource_warnings(
    nodes: Sequence[Node], demand: Demand, profile: Profile, settings: Settings
) -> Iterator[str]:
    """Extended resources of nodes without RDMA whose names do not show whether they are adapters."""
    attached = settings.attach.resources or settings.attach.mode == "dra" or demand.network_resources
    if demand.resource is None or demand.require == "tcp" or attached:
        return
    if profile.fabric.removeprefix("mnnvl+") != "tcp":
        return
    names = sorted({name for node in nodes for name, count in node.allocatable.items() if count > 0})
    unknown = [name for name in names if aliases.may_be_adapter(name)]
    if unknown:
        yield (
            f"the nodes also offer {', '.join(unknown)}, and the names do not show what it is: if it is RDMA, set it "
            "in limits and requests of ray-worker in the podTemplate, and set network.profile; otherwise pods use TCP"
        )


def find_clique_warnings(nodes: Sequence[Node], demand: Demand, profile: Profile) -> Iterator[str]:
    """Multi-node NVLink connects the nodes of one clique alone."""
    room = Counter[str]()
    for node in nodes:
        offered = node.allocatable.get(demand.resource or "", 0)
        room[node.labels.get(aliases.CLIQUE_LABEL, "")] += offered // max(demand.count, 1)
    if len(room) < 2:
        return
    largest = max(room.values())
    link = profile.fabric.removeprefix("mnnvl+")
    if largest >= demand.workers:
        yield (
            f"candidate nodes are in {len(room)} NVLink cliques: the workers are preferably placed in one of them; to "
            f"require it, set scheduling.topology to key {aliases.CLIQUE_LABEL}, mode required"
        )
    else:
        yield (
            f"candidate nodes are in {len(room)} NVLink cliques, and none has room for {demand.workers} workers (at "
            f"most {largest}): between cliques they communicate by {link}"
        )


def _find_variable_warnings(kinds: list[Facts], profile: Profile, env: dict[str, Setting]) -> Iterator[str]:
    disabled = env.get("NCCL_IB_DISABLE")
    if disabled and disabled.value == "1" and profile.fabric.removeprefix("mnnvl+") in RDMA_FABRICS:
        yield f"NCCL_IB_DISABLE=1 ({disabled.source}) leaves {profile.fabric} unused"
    switched = [name for name in NOSET if name in env]
    if switched and len(switched) < (len(NOSET) if kinds[0].vendor == "amd" else 1):
        yield f"{', '.join(switched)} without the others of {', '.join(NOSET)}: set all or none"
    cumem = env.get("NCCL_CUMEM_ENABLE")
    if cumem and cumem.value == "0" and profile.attach.compute_domain:
        yield "NCCL_CUMEM_ENABLE=0 disables multi-node NVLink"
    elif cumem and cumem.value == "0" and cumem.source.startswith("http"):
        yield (
            "NCCL_CUMEM_ENABLE=0 applies to trainer and engine; if ncclCommInitRank fails during a weight sync, "
            "override it in spec.cluster.env"
        )
