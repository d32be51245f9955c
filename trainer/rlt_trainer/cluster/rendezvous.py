"""Where the processes of a group connect, and over which network interface."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Rendezvous:
    """The address and port at which a process group is initialized."""

    address: str
    port: int

    @property
    def host(self) -> str:
        """The address in the form of a URL."""
        return f"[{self.address}]" if ":" in self.address else self.address


def node_address() -> str:
    """Return the address of this node in the Ray cluster."""
    import ray  # not at the top: `rlt-trainer replay` runs without Ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def free_port(address: str) -> int:
    """Return a port of this node's `address` on which no process listens."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        return int(server.getsockname()[1])


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
