"""The nodes that can run a worker pod of the job, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rlt_api.blocks.resources import Toleration
from rlt_core.fabric import aliases
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.missing_devices import explain_missing_devices
from rlt_core.fabric.node_affinity import matches_node_affinity
from rlt_core.fabric.nodes import Node, Taint


@dataclass(frozen=True)
class Candidates:
    """The selected nodes, by whether a worker pod can run on them."""

    nodes: tuple[Node, ...]
    """Ready, not cordoned, taints tolerated, healthy, with enough accelerators. Ordered by name."""
    selected: tuple[Node, ...]
    """All nodes that match nodeSelector and node affinity; for a declared pool those that may belong to it."""
    unavailable: tuple[Node, ...]
    """Those that would be candidates if they were uncordoned, Ready and healthy. Ordered by name."""
    ineligible: tuple[tuple[str, str], ...]
    """Name and reason of each selected node that is not a candidate."""


def find_candidates(nodes: Iterable[Node], demand: Demand) -> Candidates:
    """Find the nodes for a worker pod. The order of the nodes does not matter."""
    selector = demand.node_selector or {}
    selected = tuple(
        node
        for node in sorted(nodes, key=lambda node: node.name)
        if all(node.labels.get(key) == value for key, value in selector.items())
        and matches_node_affinity(demand.node_affinity, node)
        and _may_belong_to_pool(node, demand)
    )
    reasons = [(node, ineligible_reason(node, demand)) for node in selected]
    return Candidates(
        nodes=tuple(node for node, reason in reasons if reason is None),
        selected=selected,
        unavailable=tuple(
            node
            for node, reason in reasons
            if reason is not None and ineligible_reason(_as_healthy(node), demand) is None
        ),
        ineligible=tuple((node.name, reason) for node, reason in reasons if reason is not None),
    )


def _as_healthy(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(aliases.HEALTH_TAINTS))
    return replace(node, cordoned=False, conditions={"Ready": "True"}, taints=taints)


def _may_belong_to_pool(node: Node, demand: Demand) -> bool:
    """Whether the node may belong to the declared pool: it has the accelerator, or a label of one."""
    if not demand.declared or demand.resource in node.allocatable:
        return True
    return any(node.labels.get(key, "false") != "false" for key in aliases.VENDOR_LABELS)


def ineligible_reason(node: Node, demand: Demand) -> str | None:
    """Why the node cannot run a worker pod. None if it can."""
    if not node.ready:
        return "not Ready"
    if node.cordoned:
        return "cordoned"
    if reason := node.unhealthy_reason:
        return reason
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(each, taint) for each in demand.tolerations):
            if demand.resource and taint.key == demand.resource and taint.effect == "NoSchedule":
                continue  # the worker template tolerates it, as the ExtendedResourceToleration plugin does
            return f"taint {taint} is not tolerated"
    if demand.resource is None:
        return None
    offered = node.allocatable.get(demand.resource, 0)
    if offered < max(demand.count, 1):
        cause = explain_missing_devices(node, demand.resource)
        return f"{offered} of {demand.resource}, {demand.count} requested{f' ({cause})' if cause else ''}"
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration matches the taint: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key is None:
        return True
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (toleration.value or "") == taint.value
