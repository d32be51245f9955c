"""The network between GPU nodes: RDMA resources and network attachments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlt_core.doctor.facts import ClusterFacts
from rlt_core.doctor.line import Line, State, count, explain_unread, join_names, ok, warning
from rlt_core.fabric import aliases
from rlt_core.fabric.facts import Facts

MIN_GPUS = 8
"""GPUs of a node from which TCP between nodes is probably a mistake."""
PAGE = "docs/networking.md"


def inspect_fabric(found: Mapping[str, Facts]) -> Iterator[Line]:
    """What pods on GPU nodes can use, and what they lack. `rlt explain network` explains it for one job."""
    groups: dict[tuple[State, str, str], list[str]] = {}
    for name, facts in found.items():
        if facts.gpus:
            groups.setdefault(_describe_fabric(facts), []).append(name)
    for (state, text, fix), names in sorted(groups.items(), key=lambda each: sorted(each[1])):
        yield Line("fabric", state, f"{text} On {count(len(names), 'node')}: {join_names(names)}.", fix or None)
    problems: dict[str, list[str]] = {}
    for name, facts in found.items():
        for problem in (*facts.contradictions, *([facts.assumption] if facts.assumption else ())):
            problems.setdefault(problem, []).append(name)
    for problem, names in sorted(problems.items()):
        yield warning("fabric", f"{join_names(names)}: {problem}.", f"{PAGE}#facts")


def _describe_fabric(facts: Facts) -> tuple[State, str, str]:
    """State, text and fix."""
    if facts.missing:
        text = f"Pods use {facts.fabric}, and the hardware is {facts.hardware}: they lack {facts.missing}."
        return State.WARNING, text, PAGE
    if facts.fabric == "tcp" and facts.gpus >= MIN_GPUS:
        text = "Neither labels nor resources show RDMA: pods use TCP."
        return State.WARNING, text, f"install Node Feature Discovery and an RDMA device plugin: {PAGE}#facts"
    fabric = f"mnnvl+{facts.fabric}" if facts.mnnvl else facts.fabric
    offered = join_names([f"{name}: {amount}" for name, amount in facts.resources])
    return State.OK, f"{fabric}{f' ({offered})' if offered else ''}.", ""


def inspect_attachments(facts: ClusterFacts, found: Mapping[str, Facts]) -> Iterator[Line]:
    """Additional networks (Multus), which SR-IOV virtual functions need."""
    functions = sorted(
        {name for each in found.values() for name, _ in each.resources if aliases.VIRTUAL_FUNCTIONS.search(name)}
    )
    if not facts.attachments.known:
        if functions:
            yield explain_unread("attachments", facts.attachments)
        return
    names = [each["metadata"]["name"] for each in facts.attachments.items]
    if names:
        yield ok("attachments", f"NetworkAttachmentDefinitions of the namespace: {join_names(names)}")
    elif functions:
        state = "has no NetworkAttachmentDefinition" if facts.attachments.installed else "has no Multus"
        message = f"{', '.join(functions)} are virtual functions, and namespace {facts.namespace} {state}."
        yield warning("attachments", message, f"create one, and set network.attach: multus: {PAGE}#settings")
