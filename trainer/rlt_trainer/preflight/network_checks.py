"""The checks of the network between the ranks: pure functions of the measurements."""

from __future__ import annotations

from rlt_api.status import PreflightCheck
from rlt_api.training_config import Preflight, TrainingConfig
from rlt_trainer.preflight.checks import Check, failed, format_pods, passed, select_named
from rlt_trainer.preflight.measurements import Measurements
from rlt_trainer.preflight.nccl_log import TCP


def pods_connect(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck | None:
    """Every pod can open a connection to every other pod, on any port."""
    if measured.connections == 0:
        return None
    value = f"{measured.connections - len(measured.broken)} of {measured.connections}"
    if not measured.broken:
        return passed("connections", value, "Every pod can connect to every other pod.")
    errors = "; ".join(f"{link.pod} -> {link.peer}: {link.error}" for link in measured.broken[:3])
    message = f"{len(measured.broken)} connections failed: {errors}."
    remedy = (
        "Allow connections between the job's pods on all ports (NetworkPolicy, security groups, firewalls on nodes). "
        f"The pods use {_format_interfaces(measured)}; network.socketInterface selects another interface."
    )
    return failed("connections", value, message, remedy, (link.peer for link in measured.broken))


def all_reduce_is_correct(config: TrainingConfig, expected: Preflight, measured: Measurements) -> PreflightCheck | None:
    """All ranks join the process group and compute correct sums."""
    reductions, ranks = measured.reductions, len(measured.reductions)
    if not reductions:
        return None
    group = f"{measured.backend}, {ranks} ranks"
    errors = {each.pod: each.error for each in reductions if each.error is not None}
    unresponsive = {each.pod: each.error for each in reductions if each.error is not None and each.is_unresponsive}
    if causes := unresponsive or errors:
        reasons = "; ".join(f"{pod}: {error}" for pod, error in select_named(causes))
        message = f"Not all ranks joined ({group}, interfaces {_format_interfaces(measured)}): {reasons}."
        remedy = (
            "Inspect these pods, the network of their nodes, and network.socketInterface. `rlt explain network` shows "
            "the pods' settings."
        )
        return failed("all-reduce", None, message, remedy, causes)
    slowest = max(reductions, key=lambda each: each.seconds)
    value = f"{compute_bus_bandwidth(slowest.bytes, slowest.seconds, ranks) / 1e9:.2f} GB/s" if ranks > 1 else None
    if wrong := {each.pod: each.wrong for each in reductions if each.wrong}:
        sizes = ", ".join(f"{size} bytes" for size in next(iter(wrong.values())))
        message = f"{format_pods(wrong)} computed a wrong sum of {sizes} ({group})."
        remedy = "An accelerator, a cable or a switch corrupts data: exclude the node, and inspect its hardware."
        return failed("all-reduce", value, message, remedy, wrong)
    if ranks == 1:
        return passed("all-reduce", None, "There is only one rank, so nothing was reduced.")
    message = f"All sums are correct ({group}); bus bandwidth for {slowest.bytes / 2**20:.0f} MiB."
    return passed("all-reduce", value, message)


def transport_is_as_required(
    config: TrainingConfig, expected: Preflight, measured: Measurements
) -> PreflightCheck | None:
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


CHECKS: list[Check] = [pods_connect, all_reduce_is_correct, transport_is_as_required]


def compute_bus_bandwidth(bytes: int, seconds: float, ranks: int) -> float:
    """Compute the bus bandwidth of an all-reduce in bytes per second: 2 (n - 1) / n * bytes / seconds.

    It is comparable for any number of ranks (nccl-tests, doc/PERFORMANCE.md, AllReduce).
    """
    return 2 * (ranks - 1) / ranks * bytes / seconds


def _format_interfaces(measured: Measurements) -> str:
    return ", ".join(sorted({pod.interface for pod in measured.pods if pod.role is not None})) or "unknown"
