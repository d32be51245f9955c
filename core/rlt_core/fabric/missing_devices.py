"""Accelerators that labels of a node show and its allocatable lacks, and room for all workers on the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlt_core.fabric import aliases
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.nodes import Node

POSSIBLE_CAUSES = (
    "the label is stale, the device plugin does not run, or a DRA driver offers the GPUs as ResourceSlices"
)


def explain_missing_devices(node: Node, resource: str) -> str | None:
    """Why the node offers fewer accelerators than its labels show. None if no label shows more, or for parts of GPUs.

    The plugin of the device counts in allocatable; a DRA driver publishes ResourceSlices instead:
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
    """
    vendor = aliases.GPU_RESOURCES.get(resource)
    offered = node.allocatable.get(resource, 0)
    parts = [name for name, count in node.allocatable.items() if count > 0 and aliases.GPU_PART.match(name)]
    if vendor is None or parts:
        return None
    label, counted = _find_count(node, vendor)
    if counted > offered > 0:
        return f"label {label}={counted}, but allocatable has {offered}: the others are unhealthy or reserved"
    if offered:
        return None
    if driver := next((key for key in aliases.GPU_DRA_LABELS if node.labels.get(key) == "true"), None):
        return f"label {driver}=true: a DRA driver offers its GPUs as ResourceSlices"
    if counted:
        return f"label {label}={counted}, but allocatable has 0: {POSSIBLE_CAUSES}"
    if shown := next((key for key in aliases.GPU_HARDWARE_LABELS[vendor] if _is_set(node, key)), None):
        return f"label {shown}={node.labels[shown]}, but allocatable has 0: {POSSIBLE_CAUSES}"
    return None


def find_device_warnings(nodes: Iterable[Node], demand: Demand) -> Iterator[str]:
    """Labels of selected nodes that contradict allocatable."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if demand.resource and (reason := explain_missing_devices(node, demand.resource)):
            groups.setdefault(reason, []).append(node.name)
    if groups:
        yield (
            f"labels and allocatable do not agree: {format_groups(groups)}; check the device plugin, or "
            "`kubectl get resourceslices`"
        )


def find_room_warnings(
    nodes: Iterable[Node], selected: int, ineligible: Iterable[tuple[str, str]], demand: Demand
) -> Iterator[str]:
    """Fewer usable nodes than the group's workers need. An autoscaler may add nodes of a declared pool."""
    if demand.resource is None or demand.declared or demand.count == 0:
        return
    usable = list(nodes)
    room = sum(node.allocatable.get(demand.resource, 0) // demand.count for node in usable)
    if not usable or room >= demand.workers:
        return
    groups: dict[str, list[str]] = {}
    for name, reason in ineligible:
        groups.setdefault(reason, []).append(name)
    others = f" ({format_groups(groups)})" if groups else ""
    yield (
        f"{len(usable)} of {selected} nodes can run workers{others}: the job needs {demand.workers} workers with "
        f"{demand.count} {demand.resource} each, and there is room for {room}; add or repair nodes, or set fewer "
        "replicas"
    )


def format_groups(groups: Mapping[str, Sequence[str]]) -> str:
    """Format which nodes have which property: "aws-efa on a, b; tcp on c"."""
    parts = []
    for what, nodes in sorted(groups.items()):
        more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
        parts.append(f"{what} on {', '.join(nodes[:3])}{more}")
    return "; ".join(parts)


def _find_count(node: Node, vendor: str) -> tuple[str, int]:
    """The label with the number of whole GPUs, and the number. 0 without one."""
    if vendor == "nvidia":
        return aliases.COUNT_LABEL, _parse_count(node.labels.get(aliases.COUNT_LABEL, ""))
    counted = [key for key in sorted(node.labels) if aliases.AMD_COUNTED.match(key)]
    return (counted[0], _parse_count(node.labels[counted[0]])) if counted else ("", 0)


def _parse_count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _is_set(node: Node, label: str) -> bool:
    return node.labels.get(label, "false") != "false"
