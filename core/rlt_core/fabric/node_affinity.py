"""Which nodes a pod's required node affinity lets it run on.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlt_core.fabric.nodes import Node


@dataclass(frozen=True)
class Requirement:
    """What a label of the node must be."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels fulfils it."""
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
"""Requirements all of which must hold."""
NAME_FIELD = "metadata.name"
"""The only field of a node that an affinity may name (matchFields)."""


def matches_node_affinity(terms: tuple[Term, ...] | None, node: Node) -> bool:
    """Whether one of the terms matches, None being no affinity at all. An empty term matches of no node."""
    if terms is None:
        return True
    labels = {**node.labels, NAME_FIELD: node.name}
    return any(term and all(each.matches(labels) for each in term) for term in terms)
