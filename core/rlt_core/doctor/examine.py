"""All lines of `rlt doctor` in their order, and whether they have an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlt_core.doctor import devices, fabric, installation, namespace, storage
from rlt_core.doctor.facts import ClusterFacts
from rlt_core.doctor.line import Line, State, unknown
from rlt_core.fabric.facts import detect_facts
from rlt_core.fabric.nodes import parse_nodes


def examine(facts: ClusterFacts) -> tuple[Line, ...]:
    """What the cluster has and lacks, ordered by topic."""
    return tuple(_iterate_lines(facts))


def has_error(lines: Iterable[Line]) -> bool:
    """Whether no job works, or none on accelerators."""
    return any(line.state == State.ERROR for line in lines)


def _iterate_lines(facts: ClusterFacts) -> Iterator[Line]:
    nodes = parse_nodes(facts.nodes.items)
    found = detect_facts(nodes)
    yield from installation.inspect_kubernetes(facts)
    yield from installation.inspect_kuberay(facts)
    yield from installation.inspect_crds(facts)
    yield from installation.inspect_operator(facts)
    yield from installation.inspect_webhook(facts)
    yield from devices.inspect_nodes(facts, nodes)
    if nodes:
        yield from devices.inspect_accelerators(facts, nodes, found)
        yield from devices.inspect_labels(nodes, found)
        yield from devices.inspect_drivers(nodes, found)
        yield from devices.inspect_room(facts, nodes)
        yield from fabric.inspect_fabric(found)
        yield from fabric.inspect_attachments(facts, found)
    yield from storage.inspect_storage_classes(facts)
    yield from storage.inspect_volume_claims(facts, found)
    yield from namespace.inspect_runtimes(facts)
    yield from namespace.inspect_queues(facts)
    yield from namespace.inspect_quota(facts)
    yield from namespace.inspect_images(facts)
    yield from namespace.inspect_network_policies(facts)
    message = "Locked memory, /dev/shm and the bandwidth of NCCL are not in the API: a job measures them."
    yield unknown("inside pods", message, "rlt preflight JOB --level full")
