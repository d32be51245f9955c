"""TCP connections between all pods. NCCL and gloo open them on ports that the kernel selects."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rlt_trainer.preflight.measurements import BrokenLink

CONNECT_TIMEOUT_S = 5.0
MAX_CONCURRENT = 64
"""Maximum number of connections that a pod opens at the same time."""


@dataclass(frozen=True)
class Listener:
    """A pod that listens for connections."""

    pod: str
    address: str
    port: int


def listen(address: str) -> socket.socket:
    """Listen on a free port. The kernel completes connections without accept(), up to the backlog."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def find_broken_links(pod: str, peers: Sequence[Listener], *, timeout_s: float = CONNECT_TIMEOUT_S) -> list[BrokenLink]:
    """Connect from this pod to its peers. Return the connections that failed."""
    with ThreadPoolExecutor(MAX_CONCURRENT) as threads:
        errors = list(threads.map(lambda peer: _try_connect(peer, timeout_s), peers))
    return [BrokenLink(pod, peer.pod, error) for peer, error in zip(peers, errors, strict=True) if error is not None]


def _try_connect(peer: Listener, timeout_s: float) -> str | None:
    """Return the error, or None if the connection succeeds."""
    try:
        socket.create_connection((peer.address, peer.port), timeout=timeout_s).close()
    except TimeoutError:
        return f"{peer.address} does not answer within {timeout_s:.0f} s"
    except OSError as error:
        return f"{peer.address}: {error.strerror or error}"
    return None
