"""TCP connections between all pods. NCCL and gloo open them on ports that the kernel selects."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlt_pod.preflight.facts.network_facts import CONNECT_TIMEOUT_S, try_connect

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CONCURRENT = 64
"""Maximum number of connections that a pod opens at the same time."""


@dataclass(frozen=True)
class Listener:
    """A pod that listens for connections."""

    pod: str
    address: str
    port: int


@dataclass(frozen=True)
class BrokenLink:
    """A connection from one pod to another that failed."""

    pod: str
    peer: str
    error: str


def listen(address: str) -> socket.socket:
    """Listen on a free port. The kernel completes connections without accept(), up to the backlog."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def find_broken_links(pod: str, peers: Sequence[Listener], *, timeout_s: float = CONNECT_TIMEOUT_S) -> list[BrokenLink]:
    """Connect from this pod to its peers. Return the connections that failed."""

    def find_broken_link(peer: Listener) -> BrokenLink | None:
        error = try_connect(peer.address, peer.port, timeout_s)
        return None if error is None else BrokenLink(pod, peer.pod, error)

    with ThreadPoolExecutor(MAX_CONCURRENT) as threads:
        return [link for link in threads.map(find_broken_link, peers) if link is not None]
