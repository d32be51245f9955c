"""The way in: nodes and a demand to one answer, which `rlt explain network` and status.network show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlt_api.rules.shared_memory import SharedMemory, gib
from rlt_core.fabric import rejections
from rlt_core.fabric.candidates import candidates
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.facts import Facts, declared, facts
from rlt_core.fabric.nodes import Node, nodes_of
from rlt_core.fabric.profiles import Profile, choose, generic, load
from rlt_core.fabric.rejections import Rejection
from rlt_core.fabric.settings import Settings, settings
from rlt_core.fabric.warnings import find_warnings

T = TypeVar("T")


@dataclass(frozen=True)
class Network:
    """Everything that was decided, and why."""

    profile: str
    fabric: str
    """infiniband, roce, efa, gib, tcpx, tcpxo, tcp or none, or mnnvl+ and one of them."""
    vendor: str
    agree: bool
    """Whether all candidate nodes want the same."""
    candidates: tuple[str, ...]
    rejected: tuple[tuple[str, str], ...]
    """Selected nodes that are no candidates, with the reason."""
    refusals: tuple[Rejection, ...]
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
            "refused": self.refusals[0].to_json() if self.refusals else None,
            "evidence": list(self.evidence),
            "env": [setting.to_json() for setting in self.settings.env],
            "overriddenByUser": list(self.settings.overridden_by_user),
            "attach": {"mode": self.settings.attach.mode, "resources": dict(self.settings.attach.resources)},
            "warnings": list(self.warnings),
        }


def explain(nodes_json: Mapping[str, Any] | Sequence[Mapping[str, Any]], *demands: Demand) -> dict[str, Any]:
    """The answer as JSON, from what `kubectl get nodes -o json` prints."""
    return network_of_groups(nodes_of(nodes_json), demands).to_json()


def network_of_groups(nodes: Sequence[Node], demands: Sequence[Demand]) -> Network:
    """One answer for all worker groups: their pods are one process group, and have one environment.

    Groups that want different settings get the generic profile, as nodes that do.
    """
    answers = [network(nodes, demand) for demand in demands]
    if len({(answer.profile, answer.fabric, answer.settings) for answer in answers}) == 1:
        return _together(answers)
    groups = {answer.profile: answer.candidates for answer in answers}
    vendors = {answer.vendor for answer in answers} - {"none"}
    plain = [
        network(nodes, replace(demand, profile=generic(answer.vendor).name, require="any"))
        for demand, answer in zip(demands, answers, strict=True)
    ]
    refused = [refusal for answer in answers for refusal in answer.refusals]
    if len(vendors) > 1:
        refused.append(rejections.groups_of_two_vendors(vendors))
    elif any(demand.require == "rdma" for demand in demands):
        refused.append(rejections.disagreement(groups))
    warning = f"worker groups do not agree, the generic profile is used: {rejections.spread(groups)}"
    found = _together(plain)
    return replace(found, agree=False, refusals=tuple(refused), warnings=(warning, *found.warnings))


def _together(answers: Sequence[Network]) -> Network:
    """Answers that agree as one."""
    first = answers[0]

    def union(parts: Iterable[Sequence[T]]) -> tuple[T, ...]:
        return tuple(dict.fromkeys(each for part in parts for each in part))

    return replace(
        first,
        agree=all(answer.agree for answer in answers),
        candidates=tuple(sorted(union(answer.candidates for answer in answers))),
        rejected=union(answer.rejected for answer in answers),
        refusals=union(answer.refusals for answer in answers),
        evidence=union(answer.evidence for answer in answers),
        warnings=union(answer.warnings for answer in answers),
        gpus_per_node=min(answer.gpus_per_node for answer in answers),
    )


def network(nodes: Sequence[Node], demand: Demand) -> Network:
    """What the job's pods get on these nodes. The order of the nodes does not matter; equal input, equal answer."""
    found = candidates(nodes, demand)
    refused = [*rejections.of_accelerator(demand), *rejections.of_candidates(found, demand)]
    warnings: list[str] = []
    kinds: dict[Facts, list[str]] = {}
    for name, said in facts(found.nodes or found.away).items():
        kinds.setdefault(_asked(said, demand), []).append(name)
    if not kinds:
        pool = _asked(declared(demand), demand)
        kinds[pool] = []
        if not found.selected:
            warnings.append(_unborn(nodes, demand, pool))
    profile, kind, given, agree = _agreed(kinds, demand, refused, warnings)
    alive = (
        found.nodes
        or found.away
        or any(claim.fact == "declared" for claim in kind.claims)
        or demand.profile is not None
    )
    refused += rejections.of_profile(profile, kind, demand)
    refused += rejections.of_attachment(profile, demand, given)
    refused += rejections.of_network(profile, list(kinds), demand, given)
    warnings += _of_shared_memory(demand.shared_memory)
    warnings += find_warnings(kinds, demand, profile, given)
    return Network(
        profile=profile.name,
        fabric=profile.fabric if alive else "none",
        vendor=kind.vendor,
        agree=agree,
        candidates=tuple(node.name for node in found.nodes),
        rejected=found.rejected,
        refusals=tuple(dict.fromkeys(refused)),
        evidence=_evidence(kinds),
        settings=given,
        gpus_per_node=min((each.gpus for each in kinds), default=0),
        topology=tuple(key for key in kind.topology if all(key in each.topology for each in kinds)),
        warnings=tuple(dict.fromkeys([*warnings, *given.warnings])),
    )


def _asked(kind: Facts, demand: Demand) -> Facts:
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
        unsure=None,
        contradictions=(),
    )


def _agreed(
    kinds: Mapping[Facts, list[str]], demand: Demand, refused: list[Rejection], warnings: list[str]
) -> tuple[Profile, Facts, Settings, bool]:
    """The one profile and settings of all kinds of nodes, or the generic ones and why."""
    first = next(iter(kinds))
    vendor = first.vendor
    if demand.profile is not None and demand.profile not in load():
        refused.append(rejections.unknown_profile(demand.profile))
    named = load().get(demand.profile or "")
    answers = []
    for kind in kinds:
        profile = named or (_tcp(kind) if demand.require == "tcp" else choose(kind))
        answers.append((profile, kind, settings(profile, kind, demand)))
    contradictions = sorted({said for kind in kinds for said in kind.contradictions})
    if contradictions and not named:
        warnings += [
            f"labels contradict each other, the generic profile is used: {said}; correct them, or name a profile"
            for said in contradictions
        ]
        if demand.require == "rdma":
            refused.append(rejections.contradiction(contradictions))
        profile = generic(vendor)
        return profile, first, settings(profile, _plain(first), demand), False
    if len({(profile.name, given) for profile, _, given in answers}) == 1:
        return *answers[0], True
    groups: dict[str, list[str]] = {}
    for profile, kind, given in answers:
        resources = ", ".join(f"{name}: {count}" for name, count in given.attach.resources)
        shape = f" of {kind.instance_type}" if kind.instance_type else ""
        what = f"{profile.name}{shape}{f' with {resources}' if resources else ''}"
        groups.setdefault(what, []).extend(kinds[kind])
    warnings.append(
        f"candidate nodes do not agree, the generic profile is used: {rejections.spread(groups)}; choose nodes of one "
        "kind by nodeSelector"
    )
    if demand.require == "rdma":
        refused.append(rejections.disagreement(groups))
    profile = generic(vendor)
    return profile, first, settings(profile, _plain(first), demand), False


def _plain(kind: Facts) -> Facts:
    return replace(kind, fabric="tcp", mnnvl=False, resources=())


def _tcp(kind: Facts) -> Profile:
    return choose(replace(_plain(kind), contradictions=()))


def _unborn(nodes: Sequence[Node], demand: Demand, pool: Facts) -> str:
    selector = ", ".join(f"{key}={value}" for key, value in sorted((demand.node_selector or {}).items()))
    lacking = " and ".join(each for each in (selector, demand.resource if demand.declared else None) if each)
    which = f"of {len(nodes)} nodes none has {lacking}" if nodes and lacking else "there is no node"
    if demand.profile in load():
        return f"{which}: the settings are those of network.profile {demand.profile}"
    if any(claim.fact == "declared" for claim in pool.claims):
        return f"{which}: the settings are those of the instance type {pool.instance_type}"
    return (
        f"{which}, and nothing declared says what its nodes will be: the pool's nodeSelector should name "
        "node.kubernetes.io/instance-type, or the job or its RLRuntime network.profile"
    )


def _of_shared_memory(memory: SharedMemory | None) -> Iterator[str]:
    if memory and memory.given and memory.size < memory.needed:
        yield (
            f"resources.sharedMemory is {gib(memory.size)}, but may need {memory}: NCCL fails with 'No space left on "
            "device' where it is too small"
        )


def _evidence(kinds: Mapping[Facts, list[str]]) -> tuple[str, ...]:
    """Every witness with the number of nodes that it is true of."""
    nodes = Counter[str]()
    for kind, names in kinds.items():
        for claim in kind.claims:
            nodes[str(claim)] += len(names)
    return tuple(
        f"{claim} ({count} node{'s' * (count > 1)})" if count else claim for claim, count in sorted(nodes.items())
    )
