"""Nodes, accelerators, their labels, their drivers, and how many are free."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from rlt_api.spec.accelerators import MIG_RESOURCE, find_unsupported
from rlt_core.doctor.facts import ClusterFacts
from rlt_core.doctor.line import Line, count, error, explain_unread, join_names, ok, unknown, warning
from rlt_core.fabric import aliases
from rlt_core.fabric.facts import Facts
from rlt_core.fabric.missing_devices import explain_missing_devices
from rlt_core.fabric.nodes import Node
from rlt_pod.preflight.checks.service_checks import MIN_NVIDIA_DRIVERS

IMAGE_CUDA = 13
"""Major version of CUDA in the image `cuda` (torch in trainer/pyproject.toml)."""
PLUGINS = {
    "nvidia": "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/",
    "amd": "https://instinct.docs.amd.com/projects/gpu-operator/",
}
"""The operator that installs driver, device plugin and labels."""
DRA_DRIVERS = {"gpu.nvidia.com": "nvidia.com/gpu", "gpu.amd.com": "amd.com/gpu"}
"""DRA driver of GPUs -> the extended resource that jobs request instead."""
RESOURCES = {name: vendor for name, vendor in aliases.GPU_RESOURCES.items() if not name.endswith(".shared")}
PAGE = "docs/networking.md#facts"

Reason = TypeVar("Reason", bound=Hashable)


def inspect_nodes(facts: ClusterFacts, nodes: tuple[Node, ...]) -> Iterator[Line]:
    """How many nodes are ready, and which are not."""
    if not facts.nodes.known:
        yield explain_unread("nodes", facts.nodes)
        return
    if not nodes:
        yield error("nodes", "The cluster has no nodes.", "kubectl get nodes")
        return
    unhealthy = {node.name: node.unhealthy_reason or "not ready" for node in nodes if _is_unhealthy(node)}
    cordoned = [node.name for node in nodes if node.cordoned]
    usable = len({node.name for node in nodes} - unhealthy.keys() - set(cordoned))
    text = f"{usable} of {count(len(nodes), 'node')} can run pods"
    if not facts.nodes.complete:
        text += ", of the first that were read"
    reasons = [f"{reason}: {join_names(names)}" for reason, names in _group_names(unhealthy).items()]
    if cordoned:
        reasons.append(f"cordoned: {join_names(cordoned)}")
    if not reasons:
        yield ok("nodes", text)
    else:
        report = warning if usable else error
        yield report(
            "nodes", f"{text}. {'; '.join(reasons)}.", f"kubectl describe node {sorted({*unhealthy, *cordoned})[0]}"
        )


def inspect_accelerators(facts: ClusterFacts, nodes: tuple[Node, ...], found: Mapping[str, Facts]) -> Iterator[Line]:
    """What device plugins offer, by kind of node."""
    kinds: dict[str, list[str]] = {}
    for node in nodes:
        for kind in _describe_devices(node, found[node.name]):
            kinds.setdefault(kind, []).append(node.name)
    for kind, names in sorted(kinds.items()):
        yield ok("accelerators", f"{kind} on {count(len(names), 'node')}: {join_names(names)}")
    shared = [name for name, each in found.items() if each.slicing]
    if shared:
        how = ", ".join(sorted({str(found[name].slicing) for name in shared}))
        yield warning("accelerators", f"GPUs are divided ({how}) on {join_names(shared)}.", PAGE)
    missing = {node.name: lack for node in nodes if (lack := _explain_missing(node, found[node.name].vendor))}
    for (resource, reason), names in sorted(_group_names(missing).items()):
        report = warning if kinds else error
        plugin = PLUGINS[aliases.GPU_RESOURCES[resource]]
        yield report(
            "device plugin", f"{join_names(names)}: {reason}.", f"install or repair the device plugin: {plugin}"
        )
    yield from _inspect_dra(facts, bool(kinds))
    unsupported = sorted({each for node in nodes for name in node.allocatable if (each := find_unsupported(name))})
    if unsupported:
        yield warning("accelerators", f"rlt does not support {', '.join(unsupported)}.", "docs/training.md")
    if not kinds and not missing:
        message = "No node has GPUs: jobs run on CPUs, unless an autoscaler adds GPU nodes."
        yield warning("accelerators", message, f"{PLUGINS['nvidia']}, {PLUGINS['amd']}")


def inspect_labels(nodes: tuple[Node, ...], found: Mapping[str, Facts]) -> Iterator[Line]:
    """Labels with the model of the GPUs, which decide on network profile and node pool."""
    with_devices = [node.name for node in nodes if found[node.name].gpus]
    unnamed = [name for name in with_devices if found[name].product is None]
    if unnamed:
        vendors = sorted({found[name].vendor for name in unnamed} & PLUGINS.keys())
        message = f"No label shows the GPU model of {count(len(unnamed), 'node')}: {join_names(unnamed)}."
        yield warning(
            "gpu labels", message, f"install feature discovery: {', '.join(PLUGINS[each] for each in vendors)}"
        )
    elif with_devices:
        yield ok("gpu labels", "Labels show the GPU model of all nodes with GPUs.")
    arm = [name for name in with_devices if found[name].architecture == "arm64"]
    if arm:
        message = f"{count(len(arm), 'GPU node')} with arm64 ({join_names(arm)}): the images must be for arm64."
        yield warning("gpu labels", message, "docs/published-images.md#what-to-check")


def inspect_drivers(nodes: tuple[Node, ...], found: Mapping[str, Facts]) -> Iterator[Line]:
    """The driver of NVIDIA's GPUs against CUDA in the image. AMD's images contain all but the kernel module."""
    minimum = MIN_NVIDIA_DRIVERS[IMAGE_CUDA]
    drivers: dict[tuple[str, str | None], list[str]] = {}
    for node in nodes:
        each = found[node.name]
        if each.gpus:
            drivers.setdefault((each.vendor, each.driver), []).append(node.name)
    for (vendor, driver), names in sorted(drivers.items(), key=str):
        where = f"{count(len(names), 'node')}: {join_names(names)}"
        major = re.match(r"\d+", driver or "")
        if driver is None or major is None:
            message = f"No label shows the {vendor.upper()} driver of {where}."
            yield unknown("driver", message, f"rlt preflight JOB, or install {PLUGINS.get(vendor, PLUGINS['nvidia'])}")
        elif vendor == "nvidia" and int(major[0]) < minimum:
            message = f"CUDA {IMAGE_CUDA} of the trainer image needs R{minimum}; the driver is {driver} on {where}."
            yield error("driver", message, "update the driver, or use an image for CUDA 12: docs/preflight.md#services")
        else:
            yield ok("driver", f"{vendor} {driver} on {where}")


def inspect_room(facts: ClusterFacts, nodes: tuple[Node, ...]) -> Iterator[Line]:
    """Accelerators that no pod requests, on nodes that can run pods."""
    usable = {node.name: node for node in nodes if not _is_unhealthy(node) and not node.cordoned}
    offered = Counter[str]()
    for node in usable.values():
        offered.update({name: amount for name, amount in node.allocatable.items() if _is_gpu(name)})
    if not +offered:
        return
    if not facts.pods.known:
        yield explain_unread("free gpus", facts.pods)
        return
    used = Counter[str]()
    for pod in facts.pods.items:
        if pod["node"] in usable:
            used.update({name: amount for name, amount in pod["requests"].items() if name in offered})
    for name, amount in sorted((+offered).items()):
        free = amount - used[name]
        text = f"{free} of {amount} {name} are free"
        if not facts.pods.complete:
            text += " at most: the cluster has more pods than were read"
        if free > 0:
            yield ok("free gpus", text)
        else:
            yield warning("free gpus", f"{text}: jobs wait for running pods.", "docs/scheduling.md")


def _explain_missing(node: Node, vendor: str) -> tuple[str, str] | None:
    """The resource that a node's labels show and its allocatable lacks, and why. None if nothing is missing."""
    for resource, its_vendor in RESOURCES.items():
        reason = explain_missing_devices(node, resource) if vendor in (its_vendor, "none") else None
        if reason:
            return resource, reason
    return None


def _inspect_dra(facts: ClusterFacts, has_others: bool) -> Iterator[Line]:
    slices = Counter[str](str((each.get("spec") or {}).get("driver")) for each in facts.resource_slices.items)
    for driver, resource in DRA_DRIVERS.items():
        if slices[driver] and not has_others:
            message = (
                f"DRA driver {driver} offers GPUs as {count(slices[driver], 'ResourceSlice')}. "
                f"Jobs request {resource}, which a device plugin offers."
            )
            yield error("device plugin", message, "docs/networking.md#facts")


def _describe_devices(node: Node, facts: Facts) -> Iterator[str]:
    product = facts.product or "unknown model"
    for name, amount in sorted(node.allocatable.items()):
        if amount > 0 and _is_gpu(name):
            yield f"{amount} x {name} ({product})"


def _group_names(reasons: Mapping[str, Reason]) -> dict[Reason, list[str]]:
    groups: dict[Reason, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    return groups


def _is_unhealthy(node: Node) -> bool:
    return not node.ready or node.unhealthy_reason is not None


def _is_gpu(resource: str) -> bool:
    return resource in aliases.GPU_RESOURCES or resource.startswith(MIG_RESOURCE)
