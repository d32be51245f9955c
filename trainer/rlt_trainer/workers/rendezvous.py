"""Where processes of a group meet, and over which interface."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks meet."""

    address: str
    port: int

    @property
    def host(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.address}]" if ":" in self.address else self.address


def free_port(address: str) -> int:
    """A port at this node's `address` that nobody listens at."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        return int(server.getsockname()[1])


def use_interface_of(address: str) -> None:
    """Let gloo listen at the node's own `address`: it resolves the host's name, which may give loopback.

    GLOO_SOCKET_IFNAME, where the user has set it, is left alone.
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
    """The network interface that has the address."""
    found = psutil.net_if_addrs().items()
    return next((name for name, its in found if any(each.address == address for each in its)), None)
