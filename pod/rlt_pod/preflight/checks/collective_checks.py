"""The checks of collectives between the ranks: pure functions of the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_pod.preflight.checks.network_checks import format_interfaces
from rlt_pod.preflight.facts.all_reduce import compute_bus_bandwidth
from rlt_pod.preflight.facts.nccl_log import TCP
from rlt_pod.preflight.facts.pairs import find_slow_pods
from rlt_pod.preflight.measure import is_slower
from rlt_pod.preflight.result import Result, fail_if, failed, format_pods, format_reasons, passed

if TYPE_CHECKING:
    from rlt_pod.preflight.expected import Expected
    from rlt_pod.preflight.measure import Network

LINK_SHARE = 0.5
"""Share of a pod's RDMA port rate that the bus bandwidth must reach. An estimate: the measurement is short, and
the fabric may be shared."""


def compute_limit(expected: Expected, measured: Network) -> float | None:
    """Compute the minimum bus bandwidth in bytes per second: preflight.minBusBandwidth, else from the RDMA ports.

    None: no minimum, because the ranks use TCP or are in one pod. Every byte of a ring passes the ports of each pod, so
    that the pod with the slowest ports limits the bandwidth.
    """
    if expected.min_bus_bandwidth is not None:
        return expected.min_bus_bandwidth
    transports = {name for each in measured.reductions for name in each.transports}
    rates = [
        sum(port.gigabits for port in each.rdma.ports if port.is_active) for each in measured.facts if not each.is_head
    ]
    if not transports or TCP in transports or not rates or not min(rates):
        return None
    return LINK_SHARE * min(rates) * 1e9 / 8


def all_reduce_is_correct(expected: Expected, measured: Network) -> Result | None:
    """All ranks join the process group and compute correct sums, with the expected bandwidth."""
    reductions = measured.reductions
    ranks = len(measured.reductions)
    if not reductions:
        return None
    group = f"{measured.backend}, {ranks} ranks"
    errors = {each.pod: each.error for each in reductions if each.error is not None}
    unresponsive = {each.pod: each.error for each in reductions if each.error is not None and each.is_unresponsive}
    causes = unresponsive or errors
    if causes:
        interfaces = format_interfaces(measured)
        message = f"Not all ranks joined ({group}, interfaces {interfaces}): {format_reasons(causes)}."
        remedy = (
            "Inspect these pods, the network of their nodes, and network.socketInterface. `rlt explain network` shows "
            "the pods' settings."
        )
        return failed("all-reduce", None, message, remedy, causes)
    slowest = max(reductions, key=lambda each: each.seconds)
    value = _format_bandwidth(compute_bus_bandwidth(slowest.bytes, slowest.seconds, ranks)) if ranks > 1 else None
    wrong = {each.pod: each.wrong for each in reductions if each.wrong}
    if wrong:
        sizes = ", ".join(f"{size} bytes" for size in next(iter(wrong.values())))
        message = f"{format_pods(wrong)} computed a wrong sum of {sizes} ({group})."
        remedy = "An accelerator, a cable or a switch corrupts data: exclude the node, and inspect its hardware."
        return failed("all-reduce", value, message, remedy, wrong)
    if ranks == 1:
        return passed("all-reduce", None, "There is only one rank, so nothing was reduced.")
    limit = compute_limit(expected, measured)
    threshold = None if limit is None else _format_bandwidth(limit)
    description = f"({group}); bus bandwidth for {slowest.bytes / 2**20:.0f} MiB"
    if limit is None or not is_slower(reductions, limit):
        return passed("all-reduce", value, f"All sums are correct {description}.", threshold=threshold)
    slow = find_slow_pods(measured.pairs)
    cause = f"{format_pods(slow)} is slow with every other pod" if slow else "no pod is slower than the others"
    remedy = (
        "Exclude the node, and inspect its links, accelerators and load."
        if slow
        else "Inspect the fabric (`rlt explain network`), or set preflight.minBusBandwidth to a value that it reaches."
    )
    message = f"The all-reduce is slower than {threshold} {description}; {cause}."
    fatal = expected.min_bus_bandwidth is not None
    return fail_if(fatal, "all-reduce", value, message, remedy, slow, threshold=threshold)


def transport_is_as_required(expected: Expected, measured: Network) -> Result | None:
    """NCCL does not use TCP if network.require is rdma."""
    if measured.backend != "nccl" or not any(each.transports for each in measured.reductions):
        return None
    value = ", ".join(sorted({name for each in measured.reductions for name in each.transports}))
    tcp = {each.pod for each in measured.reductions if TCP in each.transports}
    if tcp and expected.require_rdma:
        message = f"NCCL uses TCP (NET/{TCP}) in {format_pods(tcp)}, but network.require is rdma."
        remedy = (
            "Inspect the pods' settings (`rlt explain network`): the RDMA resource, IPC_LOCK, NCCL_IB_HCA, and the "
            "NET plugin in the image."
        )
        return failed("transport", value, message, remedy, tcp)
    return passed("transport", value, f"NCCL uses {value} between nodes.")


def _format_bandwidth(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2f} GB/s"


CHECKS = ((all_reduce_is_correct, "all-reduce"), (transport_is_as_required, "all-reduce"))
"""Each check, and the measurement that it is based on."""
