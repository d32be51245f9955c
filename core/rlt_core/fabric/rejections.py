"""Rejections of a job, each with a code, the evidence and the fix. They change no setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlt_api.spec.accelerators import find_unsupported, find_vendor
from rlt_core.fabric import aliases
from rlt_core.fabric.candidates import Candidates
from rlt_core.fabric.demand import MULTUS_ANNOTATION, UNREAD_VALUE, Demand
from rlt_core.fabric.facts import Facts
from rlt_core.fabric.missing_devices import explain_missing_devices, format_groups
from rlt_core.fabric.nodes import Node
from rlt_core.fabric.profiles import RDMA_FABRICS, Profile, load_profiles
from rlt_core.fabric.settings import Settings


@dataclass(frozen=True)
class Rejection:
    """Why the job does not start."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """The form in the output of `rlt explain network`."""
        return {"code": self.code, "message": self.message}


NO_CLAIMS = Rejection(
    "AttachNotPossible",
    "network.attach dra needs resourceClaims: set them in the podTemplate of the workers, or use another "
    "network.attach",
)


def reject_accelerator(demand: Demand) -> Iterable[Rejection]:
    """Reject unsupported accelerators, on any nodes."""
    wanted = [name for name in (demand.resource, *demand.other_resources) if name]
    for name in wanted:
        if product := find_unsupported(name):
            yield Rejection(
                "UnsupportedAccelerator",
                f"{name} is {product}, which is not supported: use nvidia.com/gpu or amd.com/gpu",
            )
    if demand.resource and not find_unsupported(demand.resource) and not find_vendor(demand.resource):
        yield Rejection(
            "UnsupportedAccelerator",
            f"{demand.resource} is not a supported accelerator: use nvidia.com/gpu, nvidia.com/mig-... or amd.com/gpu",
        )
    vendors = {vendor: name for name in wanted if (vendor := find_vendor(name))}
    if len(vendors) > 1:
        yield Rejection(
            "TwoVendors",
            f"one worker group requests {' and '.join(sorted(vendors.values()))}: one process group cannot span NCCL "
            "and RCCL; request accelerators of one vendor only",
        )


def reject_candidates(found: Candidates, demand: Demand) -> Iterable[Rejection]:
    """Reject nodes of which none can run a worker pod. Without selected nodes the pool may scale from zero."""
    for node in found.nodes:
        both = [name for name, _ in aliases.GPU_RESOURCES.items() if node.allocatable.get(name, 0) > 0]
        if demand.resource and len({aliases.GPU_RESOURCES[name] for name in both}) > 1:
            yield Rejection(
                "TwoVendors",
                f"node {node.name} has {' and '.join(both)}: one worker group cannot use GPUs of two vendors; remove "
                "one device plugin from the node, or select other nodes with nodeSelector",
            )
            return
    if found.nodes or not found.selected:
        return
    if demand.resource:
        offered = max(node.allocatable.get(demand.resource, 0) for node in found.selected)
        where = f"none of {len(found.selected)} nodes{_format_selector(demand)}"
        if offered == 0:
            yield _build_not_found_rejection(where, found.selected, demand.resource)
            return
        if offered < demand.count:
            yield Rejection(
                "TooManyAccelerators",
                f"{where} has {demand.count} of {demand.resource}, the maximum is {offered}: request at most {offered} "
                "per worker, and more workers",
            )
            return
    reasons = Counter(reason for _, reason in found.ineligible)
    counts = "; ".join(f"{count} node{'s' * (count > 1)}: {reason}" for reason, count in sorted(reasons.items()))
    yield Rejection("NoCandidate", f"no node can run a worker now ({counts}): repair the nodes or add tolerations")


def _build_not_found_rejection(where: str, nodes: Sequence[Node], resource: str) -> Rejection:
    causes: dict[str, list[str]] = {}
    for node in nodes:
        if cause := explain_missing_devices(node, resource):
            causes.setdefault(cause, []).append(node.name)
    if causes:
        return Rejection(
            "ResourceNotFound",
            f"{where} has {resource} in allocatable, although labels show GPUs ({format_groups(causes)}): run the "
            "device plugin on these nodes, because accelerator.resourceName does not request devices of a DRA driver "
            "(`kubectl get resourceslices` lists them), or select other nodes with nodeSelector",
        )
    return Rejection(
        "ResourceNotFound",
        f"{where} has {resource} in allocatable ({_format_offers(nodes)}): check the name and its device plugin, or "
        "the group's nodeSelector; if an autoscaler adds such nodes, declare them as a node pool in the RLRuntime",
    )


def reject_profile(profile: Profile, facts: Facts, demand: Demand) -> Iterable[Rejection]:
    """Reject a network.profile or network.attach that does not fit the nodes."""
    vendors = dict(profile.match).get("vendor", ())
    if demand.profile and vendors and facts.vendor not in vendors:
        yield Rejection(
            "ProfileDoesNotFit",
            f"network.profile {profile.name} is for {', '.join(vendors)}, but the vendor of the nodes is "
            f"{facts.vendor}: use another profile, or none",
        )
    if demand.attach == "dra" and facts.missing and not demand.has_resource_claims:
        yield NO_CLAIMS  # with a claim, the hardware decides the profile
    elif demand.attach and demand.attach not in profile.attach.modes:
        yield Rejection(
            "AttachNotPossible",
            f"network.attach {demand.attach} is not supported by profile {profile.name} ({profile.attach.source}): "
            f"use {' or '.join(profile.attach.modes)}",
        )


def reject_attachment(profile: Profile, demand: Demand, settings: Settings) -> Iterable[Rejection]:
    """Reject an attachment that lacks fields of the job, if network.attach or network.require demands it."""
    mode = settings.attach.mode
    if demand.attach != mode and demand.require != "rdma":
        return
    if mode == "multus" and not demand.has_network_annotation:
        yield Rejection(
            "AttachNotPossible",
            f"network.attach multus needs network names: set the annotation {MULTUS_ANNOTATION} in the podTemplate of "
            "the workers, or use another network.attach",
        )
    if mode == "dra" and not (demand.has_resource_claims or profile.attach.compute_domain):
        yield NO_CLAIMS


def build_unknown_profile_rejection(name: str) -> Rejection:
    """The rejection of a network.profile that does not exist."""
    return Rejection(
        "UnknownProfile", f"network.profile {name} does not exist: use one of {', '.join(load_profiles())}, or none"
    )


def reject_settings(
    profile: Profile, facts: Sequence[Facts], demand: Demand, settings: Settings
) -> Iterable[Rejection]:
    """Reject settings that contradict network.require, network.hcas or device visibility."""
    env = {setting.name: setting for setting in settings.env}
    yield from _reject_hcas(profile, facts, demand, env["NCCL_IB_HCA"].value if "NCCL_IB_HCA" in env else "")
    yield from _reject_visibility({setting.name: setting.value for setting in settings.env})
    if demand.require != "rdma":
        return
    fabric = profile.fabric.removeprefix("mnnvl+")
    if fabric not in RDMA_FABRICS:
        missing = sorted({each.missing for each in facts if each.missing})
        cause = f"missing: {'; '.join(missing)}" if missing else "no label or resource of the nodes shows RDMA"
        if fabric in ("tcpx", "tcpxo"):
            cause = f"{fabric} is TCP with GPUDirect"
        yield Rejection(
            "RdmaNotFound",
            f"network.require is rdma, but profile {profile.name} has fabric {profile.fabric} ({cause}): repair "
            "the nodes, select others with nodeSelector, or set require: any",
        )
        return
    is_attached = settings.attach.resources or settings.attach.mode == "dra" or demand.network_resources
    if profile.attach.needs_resources and not is_attached:
        missing = sorted({each.missing for each in facts if each.missing}) or ["an RDMA resource in allocatable"]
        yield Rejection(
            "RdmaNotAttached",
            f"network.require is rdma and the nodes have {profile.fabric}, but pods cannot use it; missing: "
            f"{'; '.join(missing)}; add it, or set require: any",
        )
    against: dict[str, tuple[str, ...]] = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("socket",)}
    if fabric == "efa":
        against |= {"FI_PROVIDER": ("tcp", "sockets", "udp", "shm"), "NCCL_NET_PLUGIN": ("none",)}
    for name, values in against.items():
        if name in env and env[name].value.lower() in values:
            yield Rejection(
                "RdmaDisabledByUser",
                f"network.require is rdma, but {name}={env[name].value} ({env[name].source}) disables it: remove the "
                "variable, or set require: any",
            )


def build_mixed_fabric_rejection(
    groups: Mapping[str, Sequence[str]], advice: str = "select nodes of one kind with nodeSelector"
) -> Rejection:
    """The rejection of network.require: rdma on nodes of different fabrics."""
    return Rejection(
        "MixedFabric",
        f"network.require is rdma, but the candidate nodes do not agree ({format_groups(groups)}): {advice}, "
        "or set require: any",
    )


def build_two_vendors_rejection(vendors: Iterable[str]) -> Rejection:
    """The rejection of worker groups with accelerators of different vendors."""
    return Rejection(
        "TwoVendors",
        f"the worker groups have accelerators of {' and '.join(sorted(vendors))}: one process group cannot span NCCL "
        "and RCCL; use accelerators of one vendor in all groups",
    )


def build_contradiction_rejection(contradictions: Sequence[str]) -> Rejection:
    """The rejection of network.require: rdma on nodes with contradictory labels."""
    return Rejection(
        "ContradictoryLabels",
        f"network.require is rdma, but labels contradict each other ({'; '.join(contradictions)}): correct the "
        "labels, set network.profile, or set require: any",
    )


def _reject_hcas(profile: Profile, facts: Sequence[Facts], demand: Demand, value: str) -> Iterable[Rejection]:
    is_set = bool(demand.hcas) or any(name == "NCCL_IB_HCA" for name, _ in (*demand.user_env, *demand.admin_env))
    if not is_set or not value or value == UNREAD_VALUE or value.startswith("^"):
        return
    names = [name.partition(":")[0].lstrip("=") for name in value.split(",")]
    exact = next((v.value for each in facts for v in profile.variables(each, {}) if v.name == "NCCL_IB_HCA"), "")
    known = exact[1:].split(",") if exact.startswith("=") else []
    if known and value.startswith("=") and not set(names) & set(known):
        yield _build_hca_rejection(value, f"the adapters of the machine are {', '.join(known)}")
    elif profile.fabric.removeprefix("mnnvl+") in ("tcp", "efa", "none"):
        yield _build_hca_rejection(value, f"fabric {profile.fabric} has no verbs devices")
    elif profile.hcas and not any(name.startswith(profile.hcas) for name in names if name):
        yield _build_hca_rejection(
            value, f"the adapters of profile {profile.name} begin with {' or '.join(profile.hcas)}"
        )


def _build_hca_rejection(value: str, reason: str) -> Rejection:
    return Rejection(
        "HcaMatchesNothing",
        f"adapters {value} match no device ({reason}), and NCCL would silently fall back to TCP: correct "
        "network.hcas (or NCCL_IB_HCA in spec.cluster.env), or remove it",
    )


def _reject_visibility(env: Mapping[str, str]) -> Iterable[Rejection]:
    """Ray raises on ROCR without HIP (2.60, accelerators/amd_gpu.py), vLLM if HIP and CUDA differ (rocm.py)."""
    hip, rocr, cuda = (env.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "ROCR", "CUDA"))
    if rocr is not None and hip is None:
        yield Rejection(
            "DeviceVisibility",
            f"ROCR_VISIBLE_DEVICES={rocr} without HIP_VISIBLE_DEVICES stops Ray: remove it; the device plugin assigns "
            "devices to each pod",
        )
    if hip and cuda and hip != cuda:
        yield Rejection(
            "DeviceVisibility",
            f"HIP_VISIBLE_DEVICES={hip} and CUDA_VISIBLE_DEVICES={cuda} differ, which stops vLLM: remove both; the "
            "device plugin assigns devices to each pod",
        )


def _format_offers(nodes: Iterable[Node]) -> str:
    names = sorted({name for node in nodes for name, count in node.allocatable.items() if count > 0})
    accelerators = [name for name in names if find_vendor(name) or find_unsupported(name)]
    named = [
        f"{name} ({find_unsupported(name)}, not supported)" if find_unsupported(name) else name for name in accelerators
    ]
    return f"they have {', '.join(named)}" if named else "they have no accelerator"


def _format_selector(demand: Demand) -> str:
    if not demand.node_selector:
        return ""
    return f" with {', '.join(f'{key}={value}' for key, value in sorted(demand.node_selector.items()))}"
