"""Whether every pod can open a connection to every other: NCCL and gloo do, on ports that the kernel chooses."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rlt_trainer.preflight.measured import BrokenLink

CONNECT_S = 5.0
AT_ONCE = 64


@dataclass(frozen=True)
class Listener:
    """A pod that waits for connections."""

    pod: str
    address: str
    port: int


def listen(address: str) -> socket.socket:
    """A socket at a free port. The kernel takes connections without anybody accepting them, up to the backlog."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def broken_links(pod: str, peers: Sequence[Listener], *, timeout_s: float = CONNECT_S) -> list[BrokenLink]:
    """Connections from this pod that cannot be made."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        errors = list(threads.map(lambda peer: _error(peer, timeout_s), peers))
    return [BrokenLink(pod, peer.pod, error) for peer, error in zip(peers, errors, strict=True) if error is not None]


def _error(peer: Listener, timeout_s: float) -> str | None:
    try:
        socket.create_connection((peer.address, peer.port), timeout=timeout_s).close()
    except TimeoutError:
        return f"{peer.address} does not answer within {timeout_s:.0f} s"
    except OSError as error:
        return f"{peer.address}: {error.strerror or error}"
    return None
