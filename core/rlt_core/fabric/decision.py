"""Decide the fabric of a job from its nodes and demands. `rlt explain network` and status.network show the decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlt_api.rules.shared_memory import SharedMemory, format_gib
from rlt_core.fabric import rejections
from rlt_core.fabric.candidates import find_candidates
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.facts import Facts, detect_facts, infer_declared_facts
from rlt_core.fabric.missing_devices import find_device_warnings, find_room_warnings, format_groups
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.fabric.profiles import RDMA_FABRICS, Profile, choose_profile, get_generic_profile, load_profiles
from rlt_core.fabric.rdma_nodes import advise_selection
from rlt_core.fabric.rejections import Rejection
from rlt_core.fabric.settings import Settings, build_settings
from rlt_core.fabric.warnings import find_clique_warnings, find_unknown_resource_warnings, find_warnings

T = TypeVar("T")


@dataclass(frozen=True)
class FabricDecision:
    """The settings for the pods of a job, with evidence, warnings and rejections."""

    profile: str
    fabric: str
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or one of them with the prefix mnnvl+."""
    vendor: str
    agree: bool
    """Whether all candidate nodes need the same settings."""
    candidates: tuple[str, ...]
    ineligible: tuple[tuple[str, str], ...]
    """Selected nodes that are not candidates, with the reason."""
    rejections: tuple[Rejection, ...]
    evidence: tuple[str, ...]
    settings: Settings
    gpus_per_node: int
    topology: tuple[str, ...]
    """Topology labels that all candidate nodes have."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The output of `rlt explain network -o json`."""
        return {
            "profile": self.profile,
            "fabric": self.fabric,
            "vendor": self.vendor,
            "agree": self.agree,
            "candidates": list(self.candidates),
            "rejection": self.rejections[0].to_json() if self.rejections else None,
            "evidence": list(self.evidence),
            "env": [setting.to_json() for setting in self.settings.env],
            "overriddenByUser": list(self.settings.overridden_by_user),
            "attach": {"mode": self.settings.attach.mode, "resources": dict(self.settings.attach.resources)},
            "warnings": list(self.warnings),
        }


def explain_fabric(nodes_json: Mapping[str, Any] | Sequence[Mapping[str, Any]], *demands: Demand) -> dict[str, Any]:
    """Decide the fabric from the output of `kubectl get nodes -o json`, and return the decision as JSON."""
    return decide_fabric(parse_nodes(nodes_json), demands).to_json()


def decide_fabric(nodes: Sequence[Node], demands: Sequence[Demand]) -> FabricDecision:
    """Decide for all worker groups together: their pods are one process group with one environment.

    Groups that need different settings get the generic profile, as do nodes that need different settings.
    """
    decisions = [decide_group_fabric(nodes, demand) for demand in demands]
    if len({(decision.profile, decision.fabric, decision.settings) for decision in decisions}) == 1:
        return _merge_groups(decisions)
    groups = {decision.profile: decision.candidates for decision in decisions}
    vendors = {decision.vendor for decision in decisions} - {"none"}
    plain = [
        decide_group_fabric(nodes, replace(demand, profile=get_generic_profile(decision.vendor).name, require="any"))
        for demand, decision in zip(demands, decisions, strict=True)
    ]
    rejected = [rejection for decision in decisions for rejection in decision.rejections]
    if len(vendors) > 1:
        rejected.append(rejections.build_two_vendors_rejection(vendors))
    elif any(demand.require == "rdma" for demand in demands):
        rejected.append(rejections.build_mixed_fabric_rejection(groups))
    warning = f"worker groups do not agree, the generic profile is used: {format_groups(groups)}"
    found = _merge_groups(plain)
    return replace(found, agree=False, rejections=tuple(rejected), warnings=(warning, *found.warnings))


def _merge_groups(decisions: Sequence[FabricDecision]) -> FabricDecision:
    """Merge the decisions of groups with equal settings."""
    first = decisions[0]

    def union(parts: Iterable[Sequence[T]]) -> tuple[T, ...]:
        return tuple(dict.fromkeys(each for part in parts for each in part))

    return replace(
        first,
        agree=all(decision.agree for decision in decisions),
        candidates=tuple(sorted(union(decision.candidates for decision in decisions))),
        ineligible=union(decision.ineligible for decision in decisions),
        rejections=union(decision.rejections for decision in decisions),
        evidence=union(decision.evidence for decision in decisions),
        warnings=union(decision.warnings for decision in decisions),
        gpus_per_node=min(decision.gpus_per_node for decision in decisions),
    )


def decide_group_fabric(nodes: Sequence[Node], demand: Demand) -> FabricDecision:
    """Decide for one worker group. The result is deterministic and does not depend on the order of the nodes."""
    found = find_candidates(nodes, demand)
    rejected = [*rejections.reject_accelerator(demand), *rejections.reject_candidates(found, demand)]
    warnings: list[str] = []
    kinds: dict[Facts, list[str]] = {}
    for name, facts in detect_facts(found.nodes or found.unavailable).items():
        kinds.setdefault(_restrict_to_demand(facts, demand), []).append(name)
    if not kinds:
        pool = _restrict_to_demand(infer_declared_facts(demand), demand)
        kinds[pool] = []
        if not found.selected:
            warnings.append(_describe_empty_pool(nodes, demand, pool))
    profile, kind, settings, agree = _choose_settings(kinds, found.nodes, demand, rejected, warnings)
    fabric_is_known = (
        found.nodes
        or found.unavailable
        or any(item.fact == "declared" for item in kind.evidence)
        or demand.profile is not None
    )
    rejected += rejections.reject_profile(profile, kind, demand)
    rejected += rejections.reject_attachment(profile, demand, settings)
    rejected += rejections.reject_settings(profile, list(kinds), demand, settings)
    warnings += _find_shared_memory_warnings(demand.shared_memory)
    warnings += find_warnings(kinds, demand, profile, settings)
    warnings += find_unknown_resource_warnings(found.nodes, demand, profile, settings)
    room = list(find_room_warnings(found.nodes, len(found.selected), found.ineligible, demand))
    if found.nodes:
        warnings += [*room, *find_device_warnings(found.nodes if room else found.selected, demand)]
    if profile.attach.compute_domain:
        warnings += find_clique_warnings(found.nodes, demand, profile)
    return FabricDecision(
        profile=profile.name,
        fabric=profile.fabric if fabric_is_known else "none",
        vendor=kind.vendor,
        agree=agree,
        candidates=tuple(node.name for node in found.nodes),
        ineligible=found.ineligible,
        rejections=tuple(dict.fromkeys(rejected)),
        evidence=_count_evidence(kinds),
        settings=settings,
        gpus_per_node=min((each.gpus for each in kinds), default=0),
        topology=tuple(key for key in kind.topology if all(key in each.topology for each in kinds)),
        warnings=tuple(dict.fromkeys([*warnings, *settings.warnings])),
    )


def _restrict_to_demand(kind: Facts, demand: Demand) -> Facts:
    """The facts that matter to the demand: a job on CPUs uses neither GPUs nor RDMA, and one with resourceClaims the
    fabric of the hardware."""
    if demand.resource is not None:
        claims = demand.attach == "dra" and demand.has_resource_claims and demand.require != "tcp"
        return replace(kind, fabric=kind.hardware, missing=None) if claims and kind.fabric == "tcp" else kind
    return replace(
        kind,
        vendor="none",
        product=None,
        gpus=0,
        slicing=None,
        gpu_memory=None,
        fabric="tcp",
        hardware="tcp",
        mnnvl=False,
        resources=(),
        missing=None,
        assumption=None,
        contradictions=(),
    )


def _choose_settings(
    kinds: Mapping[Facts, list[str]],
    nodes: Sequence[Node],
    demand: Demand,
    rejected: list[Rejection],
    warnings: list[str],
) -> tuple[Profile, Facts, Settings, bool]:
    """Choose one profile and its settings for all kinds of nodes: the generic one if they differ, with a warning."""
    first = next(iter(kinds))
    vendor = first.vendor
    if demand.profile is not None and demand.profile not in load_profiles():
        rejected.append(rejections.build_unknown_profile_rejection(demand.profile))
    named = load_profiles().get(demand.profile or "")
    choices = []
    for kind in kinds:
        profile = named or (_choose_tcp_profile(kind) if demand.require == "tcp" else choose_profile(kind))
        choices.append((profile, kind, build_settings(profile, kind, demand)))
    contradictions = sorted({each for kind in kinds for each in kind.contradictions})
    if contradictions and not named:
        warnings += [
            f"labels contradict each other, the generic profile is used: {each}; correct them or set network.profile"
            for each in contradictions
        ]
        if demand.require == "rdma":
            rejected.append(rejections.build_contradiction_rejection(contradictions))
        profile = get_generic_profile(vendor)
        return profile, first, build_settings(profile, _without_rdma(first), demand), False
    if len({(profile.name, settings) for profile, _, settings in choices}) == 1:
        return *choices[0], True
    groups: dict[str, list[str]] = {}
    rdma: dict[str, list[str]] = {}
    for profile, kind, settings in choices:
        resources = ", ".join(f"{name}: {count}" for name, count in settings.attach.resources)
        shape = f" of {kind.instance_type}" if kind.instance_type else ""
        what = f"{profile.name}{shape}{f' with {resources}' if resources else ''}"
        groups.setdefault(what, []).extend(kinds[kind])
        if profile.fabric.removeprefix("mnnvl+") in RDMA_FABRICS:
            rdma.setdefault(what, []).extend(kinds[kind])
    advice = advise_selection(nodes, rdma, demand) or "select nodes of one kind with nodeSelector"
    warnings.append(
        f"candidate nodes do not agree, the generic profile is used{', so that all workers use TCP' if rdma else ''}: "
        f"{format_groups(groups)}; {advice}"
    )
    if demand.require == "rdma":
        rejected.append(rejections.build_mixed_fabric_rejection(groups, advice))
    profile = get_generic_profile(vendor)
    return profile, first, build_settings(profile, _without_rdma(first), demand), False


def _without_rdma(kind: Facts) -> Facts:
    return replace(kind, fabric="tcp", mnnvl=False, resources=())


def _choose_tcp_profile(kind: Facts) -> Profile:
    return choose_profile(replace(_without_rdma(kind), contradictions=()))


def _describe_empty_pool(nodes: Sequence[Node], demand: Demand, pool: Facts) -> str:
    selector = ", ".join(f"{key}={value}" for key, value in sorted((demand.node_selector or {}).items()))
    lacking = " and ".join(each for each in (selector, demand.resource if demand.declared else None) if each)
    which = f"none of {len(nodes)} nodes has {lacking}" if nodes and lacking else "no node exists"
    if demand.profile in load_profiles():
        return f"{which}: the settings follow network.profile {demand.profile}"
    if any(item.fact == "declared" for item in pool.evidence):
        return f"{which}: the settings follow the instance type {pool.instance_type}"
    return (
        f"{which}, and their type is not declared: set the label node.kubernetes.io/instance-type in the nodeSelector "
        "of the pool, or network.profile in the job or its RLRuntime"
    )


def _find_shared_memory_warnings(memory: SharedMemory | None) -> Iterator[str]:
    if memory and memory.given and memory.size < memory.needed:
        yield (
            f"resources.sharedMemory is {format_gib(memory.size)}, but may need {memory}: if it is too small, NCCL "
            "fails with 'No space left on device'"
        )


def _count_evidence(kinds: Mapping[Facts, list[str]]) -> tuple[str, ...]:
    """All evidence, with the number of nodes that it applies to."""
    nodes = Counter[str]()
    for kind, names in kinds.items():
        for item in kind.evidence:
            nodes[str(item)] += len(names)
    return tuple(
        f"{item} ({count} node{'s' * (count > 1)})" if count else item for item, count in sorted(nodes.items())
    )
