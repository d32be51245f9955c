"""The checks of the stage network, except for the collectives: pure functions of the measurements."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rlt_pod.preflight.facts.network_facts import HEAD_PORTS
from rlt_pod.preflight.result import (
    MAX_NAMED_PODS,
    Result,
    fail_if,
    failed,
    format_pods,
    format_reasons,
    passed,
    warned,
)

if TYPE_CHECKING:
    from rlt_pod.preflight.expected import Expected
    from rlt_pod.preflight.facts.rdma import Rdma
    from rlt_pod.preflight.measure import Network

MAX_SKEW_S = 2.0
"""Larger clock differences are reported: file times are wrong, and logs of nodes cannot be compared."""


def processes_answer(expected: Expected, measured: Network) -> Result:
    """Every process starts and answers."""
    unanswered = measured.unanswered
    count = measured.processes
    value = f"{count} process{'es' * (count != 1)}"
    if not count and not unanswered:
        remedy = "Inspect the log of Ray in the workers (kubectl logs), and the connection to port 6379 of the head."
        return failed("ranks", value, "No worker has joined Ray.", remedy)
    if not unanswered:
        return passed("ranks", value, "All processes have started.")
    message = f"No answer from {format_pods(unanswered)}: {format_reasons(unanswered)}."
    remedy = "Inspect the pod's last state (kubectl describe pod), and verify that its node is healthy."
    return failed("ranks", value, message, remedy, unanswered)


def head_resolves(expected: Expected, measured: Network) -> Result | None:
    """The name of the head's Service resolves in every pod."""
    if not expected.head_service:
        return None
    errors = {each.pod: each.head_error for each in measured.facts if each.head_error is not None}
    if not errors:
        return passed("dns", None, f"Every pod resolves {expected.head_service}.")
    message = f"{format_pods(errors)} cannot resolve {expected.head_service}: {format_reasons(errors)}."
    remedy = "Inspect the DNS of the cluster (CoreDNS), and dnsPolicy and dnsConfig in your podTemplate."
    return failed("dns", None, message, remedy, errors)


def head_ports_are_reachable(expected: Expected, measured: Network) -> Result | None:
    """Every worker connects to Ray's ports on the head by the Service."""
    workers = [each for each in measured.facts if not each.is_head and each.head_error is None]
    if not expected.head_service or not workers:
        return None
    errors = {
        each.pod: ", ".join(f"port {port}: {error}" for port, error in sorted(each.unreachable_ports.items()))
        for each in workers
        if each.unreachable_ports
    }
    total = len(workers) * len(HEAD_PORTS)
    value = f"{total - sum(len(each.unreachable_ports) for each in workers)} of {total}"
    ports = " and ".join(map(str, HEAD_PORTS))
    if not errors:
        return passed("head-ports", value, f"Every worker connects to ports {ports} of {expected.head_service}.")
    message = f"{format_pods(errors)} cannot connect to {expected.head_service}: {format_reasons(errors)}."
    remedy = f"Allow connections to ports {ports} of the head (NetworkPolicy, firewalls), and inspect the Service."
    return failed("head-ports", value, message, remedy, errors)


def host_names_resolve(expected: Expected, measured: Network) -> Result:
    """Each pod's host name resolves. gloo looks it up unless GLOO_SOCKET_IFNAME selects the interface."""
    unresolved = [each.pod for each in measured.facts if not each.resolves]
    if not unresolved:
        return passed("host-names", None, "Every pod's host name resolves to an address.")
    message = (
        f"The host name of {format_pods(unresolved)} does not resolve; the interface of the pod's address is used."
    )
    remedy = "Correct /etc/hosts in the pod, or set network.socketInterface."
    return warned("host-names", None, message, remedy, unresolved)


def interfaces_exist(expected: Expected, measured: Network) -> Result | None:
    """The interfaces of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME exist and have an address."""
    workers = [each for each in measured.facts if not each.is_head] or list(measured.facts)
    selections = [(each, name, *selected) for each in workers for name, selected in each.selections.items()]
    if not selections:
        return None
    value = ", ".join(sorted({f"{name}={text}" for _, name, text, _ in selections}))
    missing: dict[str, str] = {}
    others: dict[str, str] = {}
    for facts, name, text, interfaces in selections:
        own = facts.interface.name if facts.interface else "unknown"
        if not any(each.addresses for each in interfaces):
            missing[facts.pod] = f"{name}={text} selects no interface with an address, and the pod's interface is {own}"
        elif not any(facts.address in each.addresses for each in interfaces):
            others[facts.pod] = f"{name}={text} selects {interfaces[0].name}, and the pod's address is on {own}"
    if not missing and not others:
        return passed("interfaces", value, "The selected interfaces have the pods' addresses.")
    found = missing or others
    owns = sorted({each.interface.name for each in workers if each.interface and each.pod in found})
    remedy = (
        f"Set network.socketInterface to {' or '.join(owns) or 'an interface of the pods'}, or remove the variable "
        "from cluster.env."
    )
    return fail_if(bool(missing), "interfaces", value, f"{format_reasons(found)}.", remedy, found)


def rdma_ports_are_active(expected: Expected, measured: Network) -> Result | None:
    """The selected RDMA ports are active, have the GID of NCCL_IB_GID_INDEX, and memory can be locked for them."""
    workers = [each for each in measured.facts if not each.is_head]
    if not expected.require_rdma and not any(each.rdma.ports for each in workers):
        return None
    ports = [port for each in workers for port in each.rdma.ports]
    active = [port for port in ports if port.is_active]
    layers = "/".join(sorted({port.link_layer for port in ports if port.link_layer}))
    value = f"{len(active)} of {len(ports)} ports active{f', {layers}' if layers else ''}"
    fatal = {}
    problems = {}
    for each in workers:
        if problem := _find_fatal_rdma_problem(each.rdma):
            fatal[each.pod] = problem
        elif problem := _find_rdma_problem(each.rdma):
            problems[each.pod] = problem
    if not fatal and not problems:
        netdevs = sorted({f"{port.device}={port.netdev}" for port in active if port.netdev})
        message = f"The ports are active ({', '.join(netdevs[:MAX_NAMED_PODS]) or 'without network interfaces'})."
        return passed("rdma-links", value, message)
    remedy = (
        "Inspect the port and its cable (ibstat on the node), the RDMA resource of the pod, network.hcas, and "
        "NCCL_IB_GID_INDEX. For locked memory, raise the limit of the container runtime (LimitMEMLOCK)."
    )
    found = fatal or problems
    is_failure = bool(fatal) and expected.require_rdma
    return fail_if(is_failure, "rdma-links", value, f"{format_reasons(found)}.", remedy, found)


def _find_fatal_rdma_problem(rdma: Rdma) -> str | None:
    """Return why NCCL cannot use RDMA in a pod."""
    active = [port for port in rdma.ports if port.is_active]
    if rdma.lacks_device_files:
        return "the node has RDMA devices, but the pod has no /dev/infiniband"
    if not active:
        states = ", ".join(f"{port.device}:{port.port} {port.state or 'unknown'}" for port in rdma.ports)
        return f"no active port ({states or 'no device'})"
    if rdma.gid_index is not None:
        unset = [port.device for port in active if not "".join(port.gids[rdma.gid_index : rdma.gid_index + 1])]
        if unset:
            return f"{unset[0]} has no GID with the index {rdma.gid_index} of NCCL_IB_GID_INDEX"
    return None if rdma.can_lock_memory else "the limit of locked memory (ulimit -l) is not unlimited"


def _find_rdma_problem(rdma: Rdma) -> str | None:
    inactive = [port for port in rdma.ports if not port.is_active]
    return f"{inactive[0].device}:{inactive[0].port} is {inactive[0].state or 'unknown'}" if inactive else None


def mtus_agree(expected: Expected, measured: Network) -> Result | None:
    """The interfaces with the pods' addresses have one MTU: a larger packet is lost where a path drops ICMP."""
    pods: dict[int, list[str]] = defaultdict(list)
    for each in measured.facts:
        if each.interface and each.interface.mtu:
            pods[each.interface.mtu].append(each.pod)
    if not pods:
        return None
    value = "/".join(map(str, sorted(pods)))
    if len(pods) == 1:
        return passed("mtu", value, "The interfaces of all pods have the same MTU.")
    different = "; ".join(f"{mtu} in {format_pods(names)}" for mtu, names in sorted(pods.items()))
    few = min(pods.values(), key=len)
    return warned("mtu", value, f"The MTU differs: {different}.", "Set one MTU on all nodes (CNI, switches).", few)


def variables_agree(expected: Expected, measured: Network) -> Result | None:
    """The variables of communication libraries are equal in all workers. Values are not printed."""
    workers = [each for each in measured.facts if not each.is_head]
    if len(workers) < 2:
        return None
    names = sorted({name for each in workers for name in each.digests})
    values = {name: [each.digests.get(name) for each in workers] for name in names}
    different = [name for name in names if len(set(values[name])) > 1]
    value = f"{len(names)} variables"
    if not different:
        return passed("environment", value, "The variables of NCCL, gloo and the fabric are equal in all workers.")
    common = {name: max(set(values[name]), key=values[name].count) for name in different}
    pods = [each.pod for each in workers if any(each.digests.get(name) != common[name] for name in different)]
    message = f"{', '.join(different)} differ between workers; {format_pods(pods)} have other values than most."
    return warned("environment", value, message, "Set them in cluster.env, not in a podTemplate.", pods)


def clocks_agree(expected: Expected, measured: Network) -> Result | None:
    """The clocks of all nodes differ by at most MAX_SKEW_S."""
    if not measured.skews:
        return None
    worst = max(measured.skews, key=lambda pod: abs(measured.skews[pod]))
    value = f"{abs(measured.skews[worst]):.1f} s"
    limit = f"{MAX_SKEW_S:.0f} s"
    off = [pod for pod, skew in measured.skews.items() if abs(skew) > MAX_SKEW_S]
    if off:
        message = f"The clock of {format_pods(off)} differs from the head's by {value}."
        return warned("clocks", value, message, "Run chrony or systemd-timesyncd on the node.", off, threshold=limit)
    return passed("clocks", value, "The clocks agree.", threshold=limit)


def pods_connect(expected: Expected, measured: Network) -> Result | None:
    """Every pod can open a connection to every other pod, on any port."""
    if measured.connections == 0:
        return None
    value = f"{measured.connections - len(measured.broken)} of {measured.connections}"
    if not measured.broken:
        return passed("connections", value, "Every pod can connect to every other pod.")
    errors = "; ".join(f"{link.pod} -> {link.peer}: {link.error}" for link in measured.broken[:MAX_NAMED_PODS])
    message = f"{len(measured.broken)} connections failed: {errors}."
    remedy = (
        "Allow connections between the job's pods on all ports (NetworkPolicy, security groups, firewalls on nodes). "
        f"The pods use {format_interfaces(measured)}; network.socketInterface selects another interface."
    )
    return failed("connections", value, message, remedy, (link.peer for link in measured.broken))


def format_interfaces(measured: Network) -> str:
    """Format the interfaces of the workers' addresses."""
    workers = [each for each in measured.facts if not each.is_head]
    return ", ".join(sorted({each.interface.name if each.interface else "?" for each in workers})) or "unknown"


CHECKS = (
    (processes_answer, "pods"),
    (head_resolves, "pods"),
    (head_ports_are_reachable, "pods"),
    (host_names_resolve, "pods"),
    (interfaces_exist, "pods"),
    (rdma_ports_are_active, "pods"),
    (mtus_agree, "pods"),
    (variables_agree, "pods"),
    (clocks_agree, "clocks"),
    (pods_connect, "connections"),
)
"""Each check, and the measurement that it is based on."""
