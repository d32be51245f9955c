"""The checks on the network between the ranks: pure functions of what was measured."""

from __future__ import annotations

from rlt_api.status import PreflightCheck
from rlt_api.training_config import Preflight, TrainingConfig
from rlt_trainer.preflight.bandwidth import bus_bandwidth
from rlt_trainer.preflight.checks import Check, failed, first, names, passed
from rlt_trainer.preflight.measured import Measured
from rlt_trainer.preflight.nccl_log import TCP


def pods_connect(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """Every pod can open a connection to every other, at any port."""
    if measured.connections == 0:
        return None
    value = f"{measured.connections - len(measured.broken)} of {measured.connections}"
    if not measured.broken:
        return passed("connections", value, "Every pod reaches every other.")
    said = "; ".join(f"{link.pod} -> {link.peer}: {link.error}" for link in measured.broken[:3])
    message = f"{len(measured.broken)} connections cannot be made: {said}."
    remedy = (
        "Let the job's pods reach each other at all ports (NetworkPolicy, security groups, firewall of the nodes); "
        f"their interfaces are {_interfaces(measured)}, network.socketInterface names another."
    )
    return failed("connections", value, message, remedy, (link.peer for link in measured.broken))


def all_reduce_is_right(config: TrainingConfig, expected: Preflight, measured: Measured) -> PreflightCheck | None:
    """All ranks meet, and get the right sums."""
    found, ranks = measured.reductions, len(measured.reductions)
    if not found:
        return None
    how = f"{measured.backend}, {ranks} ranks"
    gone = {each.pod: each.error for each in found if each.error is not None and each.gone}
    if lost := gone or {each.pod: each.error for each in found if each.error is not None}:
        why = "; ".join(f"{pod}: {error}" for pod, error in first(lost))
        message = f"The ranks did not all meet ({how}, interfaces {_interfaces(measured)}): {why}."
        remedy = (
            "Look at the pods named, their node's network and network.socketInterface; `rlt explain network` shows "
            "what the pods were given."
        )
        return failed("all-reduce", None, message, remedy, lost)
    slowest = max(found, key=lambda each: each.seconds)
    value = f"{bus_bandwidth(slowest.bytes, slowest.seconds, ranks) / 1e9:.2f} GB/s" if ranks > 1 else None
    if wrong := {each.pod: each.wrong for each in found if each.wrong}:
        sizes = ", ".join(f"{size} bytes" for size in next(iter(wrong.values())))
        message = f"{names(wrong)} got a wrong sum of {sizes} ({how})."
        remedy = "An accelerator, a cable or a switch there corrupts data: keep the node out, and have it looked at."
        return failed("all-reduce", value, message, remedy, wrong)
    if ranks == 1:
        return passed("all-reduce", None, "There is one rank: nothing to reduce with.")
    message = f"All sums are right ({how}); bus bandwidth of {slowest.bytes / 2**20:.0f} MiB."
    return passed("all-reduce", value, message)


def transport_is_what_was_asked(
    config: TrainingConfig, expected: Preflight, measured: Measured
) -> PreflightCheck | None:
    """network.require: rdma, and NCCL went over TCP all the same."""
    if measured.backend != "nccl" or not any(each.transports for each in measured.reductions):
        return None
    value = ", ".join(sorted({name for each in measured.reductions for name in each.transports}))
    tcp = {each.pod for each in measured.reductions if TCP in each.transports}
    if tcp and expected.require_rdma:
        message = f"NCCL of {names(tcp)} uses TCP (NET/{TCP}), and network.require is rdma."
        remedy = (
            "Look at what the pods were given (`rlt explain network`): the RDMA resource, IPC_LOCK, NCCL_IB_HCA, and "
            "whether the NET plugin is in the image."
        )
        return failed("transport", value, message, remedy, tcp)
    return passed("transport", value, f"NCCL's connections between nodes go over {value}.")


CHECKS: list[Check] = [pods_connect, all_reduce_is_right, transport_is_what_was_asked]


def _interfaces(measured: Measured) -> str:
    return ", ".join(sorted({pod.interface for pod in measured.pods if pod.role is not None})) or "unknown"
