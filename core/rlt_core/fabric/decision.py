"""The way in: nodes and a demand to one answer, which `rlt explain network` and status.network show."""

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
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.fabric.profiles import Profile, choose_profile, generic_profile, load_profiles
from rlt_core.fabric.rejections import Rejection
from rlt_core.fabric.settings import Settings, build_settings
from rlt_core.fabric.warnings import find_warnings

T = TypeVar("T")


@dataclass(frozen=True)
class FabricDecision:
    """Everything that was decided, and why."""

    profile: str
    fabric: str
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or mnnvl+ and one of them."""
    vendor: str
    agree: bool
    """Whether all candidate nodes want the same."""
    candidates: tuple[str, ...]
    ineligible: tuple[tuple[str, str], ...]
    """Selected nodes that are no candidates, with the reason."""
    rejections: tuple[Rejection, ...]
    evidence: tuple[str, ...]
    settings: Settings
    gpus_per_node: int
    topology: tuple[str, ...]
    """Labels that say where all candidate nodes are."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """What `rlt explain network -o json` prints."""
        return {
            "profile": self.profile,
            "fabric": self.fabric,
            "vendor": self.vendor,
            "agree": self.agree,
            "candidates": list(self.candidates),
            "refused": self.rejections[0].to_json() if self.rejections else None,
            "evidence": list(self.evidence),
            "env": [setting.to_json() for setting in self.settings.env],
            "overriddenByUser": list(self.settings.overridden_by_user),
            "attach": {"mode": self.settings.attach.mode, "resources": dict(self.settings.attach.resources)},
            "warnings": list(self.warnings),
        }


def explain_fabric(nodes_json: Mapping[str, Any] | Sequence[Mapping[str, Any]], *demands: Demand) -> dict[str, Any]:
    """The answer as JSON, from what `kubectl get nodes -o json` prints."""
    return decide_fabric(parse_nodes(nodes_json), demands).to_json()


def decide_fabric(nodes: Sequence[Node], demands: Sequence[Demand]) -> FabricDecision:
    """One answer for all worker groups: their pods are one process group, and have one environment.

    Groups that want different settings get the generic profile, as nodes that do.
    """
    answers = [decide_group_fabric(nodes, demand) for demand in demands]
    if len({(answer.profile, answer.fabric, answer.settings) for answer in answers}) == 1:
        return _merge_groups(answers)
    groups = {answer.profile: answer.candidates for answer in answers}
    vendors = {answer.vendor for answer in answers} - {"none"}
    plain = [
        decide_group_fabric(nodes, replace(demand, profile=generic_profile(answer.vendor).name, require="any"))
        for demand, answer in zip(demands, answers, strict=True)
    ]
    refused = [refusal for answer in answers for refusal in answer.rejections]
    if len(vendors) > 1:
        refused.append(rejections.build_two_vendors_rejection(vendors))
    elif any(demand.require == "rdma" for demand in demands):
        refused.append(rejections.build_mixed_fabric_rejection(groups))
    warning = f"worker groups do not agree, the generic profile is used: {rejections.format_groups(groups)}"
    found = _merge_groups(plain)
    return replace(found, agree=False, rejections=tuple(refused), warnings=(warning, *found.warnings))


def _merge_groups(answers: Sequence[FabricDecision]) -> FabricDecision:
    """Answers that agree as one."""
    first = answers[0]

    def union(parts: Iterable[Sequence[T]]) -> tuple[T, ...]:
        return tuple(dict.fromkeys(each for part in parts for each in part))

    return replace(
        first,
        agree=all(answer.agree for answer in answers),
        candidates=tuple(sorted(union(answer.candidates for answer in answers))),
        ineligible=union(answer.ineligible for answer in answers),
        rejections=union(answer.rejections for answer in answers),
        evidence=union(answer.evidence for answer in answers),
        warnings=union(answer.warnings for answer in answers),
        gpus_per_node=min(answer.gpus_per_node for answer in answers),
    )


def decide_group_fabric(nodes: Sequence[Node], demand: Demand) -> FabricDecision:
    """What the job's pods get on these nodes. The order of the nodes does not matter; equal input, equal answer."""
    found = find_candidates(nodes, demand)
    refused = [*rejections.reject_accelerator(demand), *rejections.reject_candidates(found, demand)]
    warnings: list[str] = []
    kinds: dict[Facts, list[str]] = {}
    for name, said in detect_facts(found.nodes or found.unavailable).items():
        kinds.setdefault(_restrict_to_demand(said, demand), []).append(name)
    if not kinds:
        pool = _restrict_to_demand(infer_declared_facts(demand), demand)
        kinds[pool] = []
        if not found.selected:
            warnings.append(_describe_empty_pool(nodes, demand, pool))
    profile, kind, given, agree = _choose_settings(kinds, demand, refused, warnings)
    alive = (
        found.nodes
        or found.unavailable
        or any(item.fact == "declared" for item in kind.evidence)
        or demand.profile is not None
    )
    refused += rejections.reject_profile(profile, kind, demand)
    refused += rejections.reject_attachment(profile, demand, given)
    refused += rejections.reject_settings(profile, list(kinds), demand, given)
    warnings += _find_shared_memory_warnings(demand.shared_memory)
    warnings += find_warnings(kinds, demand, profile, given)
    return FabricDecision(
        profile=profile.name,
        fabric=profile.fabric if alive else "none",
        vendor=kind.vendor,
        agree=agree,
        candidates=tuple(node.name for node in found.nodes),
        ineligible=found.ineligible,
        rejections=tuple(dict.fromkeys(refused)),
        evidence=_count_evidence(kinds),
        settings=given,
        gpus_per_node=min((each.gpus for each in kinds), default=0),
        topology=tuple(key for key in kind.topology if all(key in each.topology for each in kinds)),
        warnings=tuple(dict.fromkeys([*warnings, *given.warnings])),
    )


def _restrict_to_demand(kind: Facts, demand: Demand) -> Facts:
    """The facts as far as they matter to the demand: a job on CPUs uses no GPU and no RDMA of the node."""
    if demand.resource is not None:
        return kind
    return replace(
        kind,
        vendor="none",
        product=None,
        gpus=0,
        slicing=None,
        fabric="tcp",
        mnnvl=False,
        resources=(),
        missing=None,
        assumption=None,
        contradictions=(),
    )


def _choose_settings(
    kinds: Mapping[Facts, list[str]], demand: Demand, refused: list[Rejection], warnings: list[str]
) -> tuple[Profile, Facts, Settings, bool]:
    """The one profile and settings of all kinds of nodes, or the generic ones and why."""
    first = next(iter(kinds))
    vendor = first.vendor
    if demand.profile is not None and demand.profile not in load_profiles():
        refused.append(rejections.build_unknown_profile_rejection(demand.profile))
    named = load_profiles().get(demand.profile or "")
    answers = []
    for kind in kinds:
        profile = named or (_choose_tcp_profile(kind) if demand.require == "tcp" else choose_profile(kind))
        answers.append((profile, kind, build_settings(profile, kind, demand)))
    contradictions = sorted({said for kind in kinds for said in kind.contradictions})
    if contradictions and not named:
        warnings += [
            f"labels contradict each other, the generic profile is used: {said}; correct them, or name a profile"
            for said in contradictions
        ]
        if demand.require == "rdma":
            refused.append(rejections.build_contradiction_rejection(contradictions))
        profile = generic_profile(vendor)
        return profile, first, build_settings(profile, _without_rdma(first), demand), False
    if len({(profile.name, given) for profile, _, given in answers}) == 1:
        return *answers[0], True
    groups: dict[str, list[str]] = {}
    for profile, kind, given in answers:
        resources = ", ".join(f"{name}: {count}" for name, count in given.attach.resources)
        shape = f" of {kind.instance_type}" if kind.instance_type else ""
        what = f"{profile.name}{shape}{f' with {resources}' if resources else ''}"
        groups.setdefault(what, []).extend(kinds[kind])
    warnings.append(
        f"candidate nodes do not agree, the generic profile is used: {rejections.format_groups(groups)}; choose nodes of one "
        "kind by nodeSelector"
    )
    if demand.require == "rdma":
        refused.append(rejections.build_mixed_fabric_rejection(groups))
    profile = generic_profile(vendor)
    return profile, first, build_settings(profile, _without_rdma(first), demand), False


def _without_rdma(kind: Facts) -> Facts:
    return replace(kind, fabric="tcp", mnnvl=False, resources=())


def _choose_tcp_profile(kind: Facts) -> Profile:
    return choose_profile(replace(_without_rdma(kind), contradictions=()))


def _describe_empty_pool(nodes: Sequence[Node], demand: Demand, pool: Facts) -> str:
    selector = ", ".join(f"{key}={value}" for key, value in sorted((demand.node_selector or {}).items()))
    lacking = " and ".join(each for each in (selector, demand.resource if demand.declared else None) if each)
    which = f"of {len(nodes)} nodes none has {lacking}" if nodes and lacking else "there is no node"
    if demand.profile in load_profiles():
        return f"{which}: the settings are those of network.profile {demand.profile}"
    if any(item.fact == "declared" for item in pool.evidence):
        return f"{which}: the settings are those of the instance type {pool.instance_type}"
    return (
        f"{which}, and nothing declared says what its nodes will be: the pool's nodeSelector should name "
        "node.kubernetes.io/instance-type, or the job or its RLRuntime network.profile"
    )


def _find_shared_memory_warnings(memory: SharedMemory | None) -> Iterator[str]:
    if memory and memory.given and memory.size < memory.needed:
        yield (
            f"resources.sharedMemory is {format_gib(memory.size)}, but may need {memory}: NCCL fails with 'No space left on "
            "device' where it is too small"
        )


def _count_evidence(kinds: Mapping[Facts, list[str]]) -> tuple[str, ...]:
    """Every witness with the number of nodes that it is true of."""
    nodes = Counter[str]()
    for kind, names in kinds.items():
        for item in kind.evidence:
            nodes[str(item)] += len(names)
    return tuple(
        f"{item} ({count} node{'s' * (count > 1)})" if count else item for item, count in sorted(nodes.items())
    )
