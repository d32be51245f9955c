"""What a process measures about the network of its pod."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt_pod.preflight.facts.interfaces import (
    Interface,
    find_interface,
    list_interfaces,
    select_by_gloo,
    select_by_nccl,
)
from rlt_pod.preflight.facts.rdma import Rdma, measure_rdma

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD_PORTS = (6379, 8265)
"""Ports of Ray's GCS and of its dashboard on the head."""
CONNECT_TIMEOUT_S = 5.0
SHARED_VARIABLES = re.compile(
    r"(NCCL|RCCL|TORCH_NCCL|GLOO|UCX|FI|OFI|HSA|PYTORCH|VLLM(?!_HOST_IP))_[A-Z0-9_]+|HF_HOME|LD_LIBRARY_PATH"
)
"""Variables that must be equal in all worker pods: communication, and the settings of torch and vLLM. VLLM_HOST_IP is
the address of the pod."""
SELECTORS = {"NCCL_SOCKET_IFNAME": select_by_nccl, "GLOO_SOCKET_IFNAME": select_by_gloo}


@dataclass(frozen=True)
class NetworkFacts:
    """The network of one pod."""

    pod: str
    is_head: bool
    address: str
    interface: Interface | None
    """The interface with the pod's address. None: not found."""
    resolves: bool
    """Whether the host name resolves to an address."""
    head_error: str | None
    """The error of resolving the head's Service, or None."""
    unreachable_ports: Mapping[int, str]
    """Port of the head -> error."""
    selections: Mapping[str, tuple[str, tuple[Interface, ...]]]
    """Variable of SELECTORS -> its value, and the interfaces that it selects."""
    rdma: Rdma
    digests: Mapping[str, str]
    """Variable of SHARED_VARIABLES -> digest of its value, which may be secret."""


def measure_network(pod: str, address: str, *, is_head: bool, head_service: str) -> NetworkFacts:
    """Measure the pod of this process."""
    interfaces = list_interfaces()
    head_error = find_resolution_error(head_service) if head_service else None
    reaches = bool(head_service) and head_error is None
    return NetworkFacts(
        pod=pod,
        is_head=is_head,
        address=address,
        interface=find_interface(interfaces, address),
        resolves=find_resolution_error(socket.gethostname()) is None,
        head_error=head_error,
        unreachable_ports=find_unreachable_ports(head_service) if reaches else {},
        selections={
            name: (value, tuple(select(value, interfaces)))
            for name, select in SELECTORS.items()
            for value in [os.environ.get(name, "")]
            if value
        },
        rdma=measure_rdma(os.environ),
        digests=digest_variables(os.environ),
    )


def find_resolution_error(name: str) -> str | None:
    """Return the error of resolving a name, or None."""
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        return error.strerror
    return None


def find_unreachable_ports(
    host: str, ports: tuple[int, ...] = HEAD_PORTS, timeout_s: float = CONNECT_TIMEOUT_S
) -> dict[int, str]:
    """Return the ports that accept no connection -> error."""
    errors = {port: try_connect(host, port, timeout_s) for port in ports}
    return {port: error for port, error in errors.items() if error is not None}


def try_connect(host: str, port: int, timeout_s: float) -> str | None:
    """Return the error, or None if the connection succeeds."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except socket.timeout:  # noqa: UP041 - TimeoutError from Python 3.10 on
        return f"{host} does not answer within {timeout_s:.0f} s"
    except OSError as error:
        return f"{host}: {error.strerror or error}"
    return None


def digest_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the variables that must be equal."""
    return {
        name: hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:8]
        for name, value in environment.items()
        if SHARED_VARIABLES.fullmatch(name)
    }
