"""Where the processes of a group connect, and over which network interface."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import psutil  # type: ignore[import-untyped]
from torch._C._distributed_c10d import TCPStore


@dataclass(frozen=True)
class Rendezvous:
    """The address and port of the store at which the ranks of a process group meet."""

    address: str
    port: int

    def connect(self, timeout: timedelta) -> TCPStore:
        """Connect to the store. Raises DistError after the timeout."""
        return TCPStore(self.address, self.port, is_master=False, timeout=timeout)


def listen_for_ranks(address: str) -> TCPStore:
    """Start the store of a process group on this node. It keeps its port: no other process can take it before the ranks
    connect."""
    return TCPStore(address, 0, is_master=True, wait_for_workers=False)


def node_address() -> str:
    """Return the address of this node in the Ray cluster."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def use_interface_of(address: str) -> None:
    """Make gloo listen on the node's `address`. By default it resolves the host name, which may give loopback.

    A GLOO_SOCKET_IFNAME that the user set is kept.
    """
    try:
        resolved = socket.getaddrinfo(socket.gethostname(), None)
    except socket.gaierror:
        resolved = []
    if any(entry[4][0] == address for entry in resolved):
        return
    if (name := interface_of(address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def interface_of(address: str) -> str | None:
    """Return the network interface that has the address."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in interfaces if any(each.address == address for each in addresses)), None)
