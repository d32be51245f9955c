"""What cannot work, each case with its own code, the evidence and the fix. Nothing here changes a setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlt_core.fabric import aliases
from rlt_core.fabric.candidates import Candidates
from rlt_core.fabric.demand import MULTUS_ANNOTATION, UNREAD_VALUE, Demand
from rlt_core.fabric.facts import Facts
from rlt_core.fabric.nodes import Node
from rlt_core.fabric.profiles import Profile, load_profiles
from rlt_core.fabric.settings import Settings

RDMA = frozenset({"infiniband", "roce", "efa", "gib"})
"""Fabrics that are RDMA. TCPX and TCPXO are not: they are TCP with GPUDirect."""


@dataclass(frozen=True)
class Rejection:
    """Why the job is not started."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """As in the output of `rlt explain network`."""
        return {"code": self.code, "message": self.message}


def reject_accelerator(demand: Demand) -> Iterable[Rejection]:
    """What is wrong with the accelerators that are asked for, whatever nodes there are."""
    wanted = [name for name in (demand.resource, *demand.other_resources) if name]
    for name in wanted:
        if product := _find_unsupported(name):
            yield Rejection(
                "UnsupportedAccelerator",
                f"{name} is {product}, which rlt has no trainer for: ask for nvidia.com/gpu or amd.com/gpu",
            )
    if demand.resource and not _find_unsupported(demand.resource) and not _find_vendor(demand.resource):
        yield Rejection(
            "UnsupportedAccelerator",
            f"{demand.resource} is no accelerator that rlt knows: ask for nvidia.com/gpu, nvidia.com/mig-... or "
            "amd.com/gpu",
        )
    vendors = {vendor: name for name in wanted if (vendor := _find_vendor(name))}
    if len(vendors) > 1:
        yield Rejection(
            "TwoVendors",
            f"one worker group asks for {' and '.join(sorted(vendors.values()))}: one process group cannot span "
            "NCCL and RCCL; give the accelerator of one vendor only",
        )


def reject_candidates(found: Candidates, demand: Demand) -> Iterable[Rejection]:
    """Why no selected node can take a worker pod. Nothing where no node is selected: the pool may grow from zero."""
    for node in found.nodes:
        both = [name for name, _ in aliases.GPU_RESOURCES.items() if node.allocatable.get(name, 0) > 0]
        if demand.resource and len({aliases.GPU_RESOURCES[name] for name in both}) > 1:
            yield Rejection(
                "TwoVendors",
                f"node {node.name} offers {' and '.join(both)}: one worker group cannot use GPUs of two vendors; take "
                "one device plugin off the node, or choose other nodes by nodeSelector",
            )
            return
    if found.nodes or not found.selected:
        return
    if demand.resource:
        offered = max(node.allocatable.get(demand.resource, 0) for node in found.selected)
        where = f"none of {len(found.selected)} nodes{_format_selector(demand)}"
        if offered == 0:
            yield Rejection(
                "ResourceNotFound",
                f"{where} has {demand.resource} in allocatable ({_format_offers(found.selected)}): check the name and its "
                "device plugin, or the group's nodeSelector; if an autoscaler brings such nodes, declare them as a "
                "node pool of the RLRuntime",
            )
            return
        if offered < demand.count:
            yield Rejection(
                "TooManyAccelerators",
                f"{where} has {demand.count} of {demand.resource}, the most is {offered}: ask for at most {offered} "
                "for each worker, and for more workers",
            )
            return
    reasons = Counter(reason for _, reason in found.ineligible)
    said = "; ".join(f"{count} node{'s' * (count > 1)}: {reason}" for reason, count in sorted(reasons.items()))
    yield Rejection("NoCandidate", f"no node can take a worker now ({said}): mend the nodes, or add tolerations")


def reject_profile(profile: Profile, facts: Facts, demand: Demand) -> Iterable[Rejection]:
    """What is wrong with the profile or the attachment that the job names."""
    vendors = dict(profile.match).get("vendor", ())
    if demand.profile and vendors and facts.vendor not in vendors:
        yield Rejection(
            "ProfileDoesNotFit",
            f"network.profile {profile.name} is for {', '.join(vendors)}, the nodes are {facts.vendor}: name another, "
            "or none",
        )
    if demand.attach and demand.attach not in profile.attach.modes:
        yield Rejection(
            "AttachNotPossible",
            f"network.attach {demand.attach} does not work with profile {profile.name} ({profile.attach.source}): "
            f"use {' or '.join(profile.attach.modes)}",
        )


def reject_attachment(profile: Profile, demand: Demand, given: Settings) -> Iterable[Rejection]:
    """What the attachment needs of the job itself, where the job or its network.require insists on it."""
    mode = given.attach.mode
    if demand.attach != mode and demand.require != "rdma":
        return
    if mode == "multus" and not demand.has_network_annotation:
        yield Rejection(
            "AttachNotPossible",
            f"network.attach multus needs the names of the networks: give the annotation {MULTUS_ANNOTATION} in the workers' "
            "podTemplate, or another network.attach",
        )
    if mode == "dra" and not (demand.has_resource_claims or profile.attach.compute_domain):
        yield Rejection(
            "AttachNotPossible",
            "network.attach dra needs a claim: give resourceClaims in the workers' podTemplate, or another "
            "network.attach",
        )


def build_unknown_profile_rejection(name: str) -> Rejection:
    """network.profile names none."""
    return Rejection("UnknownProfile", f"there is no profile {name}: name one of {', '.join(load_profiles())}, or none")


def reject_settings(profile: Profile, facts: Sequence[Facts], demand: Demand, given: Settings) -> Iterable[Rejection]:
    """What stands against network.require, the adapters named and the variables given."""
    env = {setting.name: setting for setting in given.env}
    yield from _reject_hcas(profile, facts, demand, env["NCCL_IB_HCA"].value if "NCCL_IB_HCA" in env else "")
    yield from _reject_visibility({setting.name: setting.value for setting in given.env})
    if demand.require != "rdma":
        return
    fabric = profile.fabric.removeprefix("mnnvl+")
    if fabric not in RDMA:
        missing = sorted({each.missing for each in facts if each.missing})
        said = f"missing: {'; '.join(missing)}" if missing else "no label or resource of the nodes says RDMA"
        if fabric in ("tcpx", "tcpxo"):
            said = f"{fabric} is TCP with GPUDirect"
        yield Rejection(
            "RdmaNotFound",
            f"network.require is rdma, but profile {profile.name} has fabric {profile.fabric} ({said}): mend the "
            "nodes, choose others by nodeSelector, or set require: any",
        )
        return
    if profile.attach.needs_resources and not given.attach.resources and given.attach.mode != "dra":
        missing = sorted({each.missing for each in facts if each.missing}) or ["an RDMA resource in allocatable"]
        yield Rejection(
            "RdmaNotAttached",
            f"network.require is rdma and the nodes have {profile.fabric}, but pods cannot get at it, missing: "
            f"{'; '.join(missing)}; see to that, or set require: any",
        )
    against: dict[str, tuple[str, ...]] = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("socket",)}
    if fabric == "efa":
        against |= {"FI_PROVIDER": ("tcp", "sockets", "udp", "shm"), "NCCL_NET_PLUGIN": ("none",)}
    for name, values in against.items():
        if name in env and env[name].value.lower() in values:
            yield Rejection(
                "RdmaDisabledByUser",
                f"network.require is rdma, but {name}={env[name].value} ({env[name].source}) switches it off: remove "
                "the variable, or set require: any",
            )


def build_mixed_fabric_rejection(groups: Mapping[str, Sequence[str]]) -> Rejection:
    """network.require: rdma with nodes of different fabrics."""
    return Rejection(
        "MixedFabric",
        f"network.require is rdma, but the candidate nodes do not agree ({format_groups(groups)}): choose nodes of one kind "
        "by nodeSelector, or set require: any",
    )


def build_two_vendors_rejection(vendors: Iterable[str]) -> Rejection:
    """Worker groups whose accelerators cannot talk to each other."""
    return Rejection(
        "TwoVendors",
        f"the worker groups have accelerators of {' and '.join(sorted(vendors))}: one process group cannot span NCCL "
        "and RCCL; give all groups the accelerators of one vendor",
    )


def build_contradiction_rejection(said: Sequence[str]) -> Rejection:
    """network.require: rdma with labels that contradict each other."""
    return Rejection(
        "ContradictoryLabels",
        f"network.require is rdma, but what nodes say contradicts itself ({'; '.join(said)}): correct the labels, name "
        "a network.profile, or set require: any",
    )


def format_groups(groups: Mapping[str, Sequence[str]]) -> str:
    """Which nodes want what: "aws-efa on a, b; tcp on c"."""
    parts = []
    for what, nodes in sorted(groups.items()):
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        parts.append(f"{what} on {', '.join(nodes[:3])}{more}")
    return "; ".join(parts)


def _reject_hcas(profile: Profile, facts: Sequence[Facts], demand: Demand, value: str) -> Iterable[Rejection]:
    asked = bool(demand.hcas) or any(name == "NCCL_IB_HCA" for name, _ in (*demand.user_env, *demand.admin_env))
    if not asked or not value or value == UNREAD_VALUE or value.startswith("^"):
        return
    names = [name.partition(":")[0].lstrip("=") for name in value.split(",")]
    exact = next((v.value for each in facts for v in profile.variables(each, {}) if v.name == "NCCL_IB_HCA"), "")
    known = exact[1:].split(",") if exact.startswith("=") else []
    if known and value.startswith("=") and not set(names) & set(known):
        yield _build_hca_rejection(value, f"the machine's are {', '.join(known)}")
    elif profile.fabric.removeprefix("mnnvl+") in ("tcp", "efa", "none"):
        yield _build_hca_rejection(value, f"fabric {profile.fabric} has no verbs devices")
    elif profile.hcas and not any(name.startswith(profile.hcas) for name in names if name):
        yield _build_hca_rejection(value, f"those of profile {profile.name} begin with {' or '.join(profile.hcas)}")


def _build_hca_rejection(value: str, why: str) -> Rejection:
    return Rejection(
        "HcaMatchesNothing",
        f"the adapters {value} match nothing, {why}, and NCCL would fall back to TCP in silence: correct network.hcas "
        "(or NCCL_IB_HCA in cluster.env), or leave it out",
    )


def _reject_visibility(env: Mapping[str, str]) -> Iterable[Rejection]:
    """Ray raises on ROCR without HIP (2.60, accelerators/amd_gpu.py), vLLM where HIP and CUDA differ (rocm.py)."""
    hip, rocr, cuda = (env.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "ROCR", "CUDA"))
    if rocr is not None and hip is None:
        yield Rejection(
            "DeviceVisibility",
            f"ROCR_VISIBLE_DEVICES={rocr} without HIP_VISIBLE_DEVICES stops Ray: remove it, the device plugin gives "
            "each pod its devices",
        )
    if hip and cuda and hip != cuda:
        yield Rejection(
            "DeviceVisibility",
            f"HIP_VISIBLE_DEVICES={hip} and CUDA_VISIBLE_DEVICES={cuda} differ, which stops vLLM: remove both, the "
            "device plugin gives each pod its devices",
        )


def _find_vendor(resource: str) -> str | None:
    if resource.startswith(aliases.MIG_RESOURCE):
        return "nvidia"
    return aliases.GPU_RESOURCES.get(resource)


def _find_unsupported(resource: str) -> str | None:
    if resource.startswith("gpu.intel.com/"):
        return "Intel GPU"
    return aliases.UNSUPPORTED.get(resource)


def _format_offers(nodes: Iterable[Node]) -> str:
    names = sorted({name for node in nodes for name, count in node.allocatable.items() if count > 0})
    accelerators = [name for name in names if _find_vendor(name) or _find_unsupported(name)]
    named = [
        f"{name} ({_find_unsupported(name)}, not supported)" if _find_unsupported(name) else name
        for name in accelerators
    ]
    return f"they offer {', '.join(named)}" if named else "they offer no accelerator"


def _format_selector(demand: Demand) -> str:
    if not demand.node_selector:
        return ""
    return f" with {', '.join(f'{key}={value}' for key, value in sorted(demand.node_selector.items()))}"
