"""The nodes with RDMA among nodes that do not agree: whether they suffice for the job, and what selects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlt_core.fabric import aliases
from rlt_core.fabric.demand import Demand
from rlt_core.fabric.nodes import Node

HOST_LABEL = "kubernetes.io/hostname"
FIRST_LABELS = (*aliases.INSTANCE_LABELS, *aliases.RDMA_LABELS)
"""Labels that describe hardware: they also select nodes that are added later."""
MAX_NAMES = 16
"""Maximum number of nodes in an affinity by name."""


def advise_selection(nodes: Sequence[Node], groups: Mapping[str, Sequence[str]], demand: Demand) -> str | None:
    """The selection with which a job uses RDMA. None if no group of nodes has room for all workers.

    nodes: the candidates. groups: profile with RDMA -> names of its nodes.
    """
    for profile, names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        chosen = [node for node in nodes if node.name in names]
        room = sum(node.allocatable.get(demand.resource or "", 0) // max(demand.count, 1) for node in chosen)
        if room >= demand.workers:
            many = len(chosen) > 1
            which = f"{len(chosen)} node{'s' * many} of {profile} {'have' if many else 'has'} room for all workers"
            return f"{which}: to use RDMA, set {_name_selection(chosen, nodes)}"
    return None


def _name_selection(chosen: Sequence[Node], nodes: Sequence[Node]) -> str:
    """The field and the label that the chosen nodes have and no other candidate has."""
    labels = set.intersection(*(set(node.labels.items()) for node in chosen))
    others = [node for node in nodes if node not in chosen]
    exact = [(key, value) for key, value in sorted(labels) if all(node.labels.get(key) != value for node in others)]
    known = [label for name in FIRST_LABELS for label in exact if label[0] == name]
    found = next((label for label in (*known, *exact) if label[0] != HOST_LABEL), None)
    if found:
        return f'spec.cluster.workers[].nodeSelector to {{{found[0]}: "{found[1]}"}}'
    names = [node.labels.get(HOST_LABEL, node.name) for node in chosen]
    if len(names) > MAX_NAMES:
        return "spec.cluster.workers[].nodeSelector to a label that you give these nodes alone"
    affinity = f"{HOST_LABEL} In [{', '.join(names)}]"
    return f"a required node affinity in spec.cluster.workers[].podTemplate: {affinity}"
