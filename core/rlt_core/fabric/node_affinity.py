"""The required node affinity of a pod.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlt_core.fabric.nodes import Node


@dataclass(frozen=True)
class Requirement:
    """One requirement on a node label."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        if value is None or not value.isdecimal():
            return False
        return int(value) > int(self.values[0]) if self.operator == "Gt" else int(value) < int(self.values[0])


Term = tuple[Requirement, ...]
"""Requirements that must all be satisfied."""
NAME_FIELD = "metadata.name"
"""The only node field that matchFields supports."""


def matches_node_affinity(terms: tuple[Term, ...] | None, node: Node) -> bool:
    """Whether the node satisfies one of the terms. None means no affinity. An empty term matches no node."""
    if terms is None:
        return True
    labels = {**node.labels, NAME_FIELD: node.name}
    return any(term and all(each.matches(labels) for each in term) for term in terms)
