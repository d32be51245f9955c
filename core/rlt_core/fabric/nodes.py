"""Kubernetes nodes as the fabric reads them: names, labels, extended resources, taints, conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlt_api.model import quantity_value
from rlt_core.fabric import aliases

MAX_PROBLEM_LENGTH = 300
"""Maximum number of characters of a condition's description."""
NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""Resources of every node. All others are extended resources or huge pages."""


@dataclass(frozen=True)
class Taint:
    """A taint of a node: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class Node:
    """One node. `allocatable` has extended resources and huge pages only, also those with an amount of 0."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    cordoned: bool = False
    provider_id: str = ""
    problems: tuple[str, ...] = ()
    """Conditions that show a problem, as lines of text."""

    @property
    def ready(self) -> bool:
        return self.conditions.get("Ready") == "True"

    @cached_property
    def unhealthy_reason(self) -> str | None:
        """Why a health controller reports the node as unhealthy. None if none does."""
        for key, healthy in aliases.HEALTH_LABELS.items():
            if key in self.labels and self.labels[key] not in healthy:
                return f"label {key}={self.labels[key]}"
        for key, value in self.labels.items():
            if value == "unhealthy" and aliases.UNHEALTHY_LABELS.match(key):
                return f"label {key}={value}"
        for condition, status in aliases.UNHEALTHY_CONDITIONS.items():
            if self.conditions.get(condition) == status:
                return f"condition {condition}={status}"
        for taint in self.taints:
            if taint.key.startswith(aliases.HEALTH_TAINTS):
                return f"health taint {taint}"
        return None


def parse_nodes(manifest: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Node, ...]:
    """Parse a List (`kubectl get nodes -o json`), one Node or a sequence of Nodes. Ordered by name.

    Raises ValueError if an item is not a Node.
    """
    if not isinstance(manifest, Mapping):
        items = list(manifest)
    elif manifest.get("kind") == "Node":
        items = [manifest]
    else:
        items = list(manifest.get("items") or [])
    return tuple(sorted((_parse_node(item) for item in items), key=lambda node: node.name))


def _parse_node(manifest: Mapping[str, Any]) -> Node:
    if manifest.get("kind", "Node") != "Node":
        raise ValueError(f"{manifest.get('kind')} is not a Node: use the output of `kubectl get nodes -o yaml`")
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    return Node(
        name=str(metadata.get("name", "")),
        labels={key: str(value) for key, value in (metadata.get("labels") or {}).items()},
        allocatable={
            name: int(quantity_value(str(amount)))
            for name, amount in (status.get("allocatable") or {}).items()
            if name not in NATIVE_RESOURCES
        },
        taints=tuple(
            Taint(str(taint["key"]), str(taint.get("value") or ""), str(taint.get("effect") or "NoSchedule"))
            for taint in spec.get("taints") or []
        ),
        conditions={each["type"]: str(each["status"]) for each in status.get("conditions") or []},
        cordoned=bool(spec.get("unschedulable")),
        provider_id=str(spec.get("providerID") or ""),
        problems=tuple(_describe_condition(each) for each in status.get("conditions") or [] if _is_problem(each)),
    )


def _is_problem(condition: Mapping[str, Any]) -> bool:
    """Whether a condition shows a problem: Ready and conditions of its form should be True, all others False.

    MemoryPressure, node-problem-detector's conditions such as KernelDeadlock, and conditions of GPU health controllers
    are True with a problem; EKS' node monitoring agent has AcceleratedHardwareReady, NetworkingReady and others.
    """
    if str(condition["type"]).endswith("Ready"):
        return bool(condition["status"] != "True")
    return bool(condition["status"] == "True")


def _describe_condition(condition: Mapping[str, Any]) -> str:
    """For example: node condition Ready=Unknown, NodeStatusUnknown: Kubelet stopped posting node status."""
    reason = condition.get("reason") or "no reason"
    message = " ".join(str(condition.get("message") or "").split())
    text = f"node condition {condition['type']}={condition['status']}, {reason}: {message}"
    return text[:MAX_PROBLEM_LENGTH]
