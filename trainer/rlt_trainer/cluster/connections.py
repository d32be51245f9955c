"""End a connection between two ranks when its other end does not answer, so that a collective fails within seconds.

gloo and NCCL set no timeout on their sockets. If packets are dropped, the kernel sends again for 15 minutes, and a rank
that waits for data waits for the timeout of the collective. With keepalive probes, the kernel ends the connection, and
the collective raises an error that contains the address of the other rank.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress

CONNECTION_TIMEOUT_S = 8
"""Time without an answer after which the kernel ends a connection: four probes. The status names both pods some seconds
later."""
PROBE_INTERVAL_S = 2
LOST = re.compile(
    r"(?P<what>Read error|Write error|Connection closed by peer) \[?(?P<address>[0-9a-fA-F.:]+?)\]?:\d+"
    r"(?:: (?P<why>[A-Z][a-z ]+))?"
)
"""gloo's errors of a connection, with the address of the other end (gloo/transport/tcp/pair.cc)."""
RAISED_BY = re.compile(r"\(pid=\d+, ip=([0-9a-fA-F.:]+)")
"""The address of the process that raised an error, in Ray's text of it (ray/exceptions.py, RayTaskError, Ray 2.60)."""


def watch_connections(addresses: Collection[str]) -> int:
    """Set the timeout on the TCP connections of this process to other `addresses`. Returns their number."""
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, or not a socket
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as connection:
                if _get_peer(connection) in addresses:
                    set_timeout(connection)
                    found += 1
    return found


def set_timeout(connection: socket.socket) -> None:
    """End the connection after CONNECTION_TIMEOUT_S without an answer, with data in flight and without (tcp(7))."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CONNECTION_TIMEOUT_S // PROBE_INTERVAL_S - 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CONNECTION_TIMEOUT_S * 1000)


def describe_lost_connection(error: str, pods: Mapping[str, str]) -> str | None:
    """Describe the connection that the text of Ray's error names; None if it names none. `pods`: address -> pod."""
    lost = LOST.search(error)
    raised_by = RAISED_BY.search(error)
    if lost is None or raised_by is None:
        return None
    one, other = (pods.get(address, address) for address in (raised_by[1], lost["address"]))
    return (
        f"Pod {one} lost its connection to pod {other}: {lost['why'] or lost['what']}. Check the network between their "
        "nodes and the network policies of the namespace. The run can resume from its latest checkpoint."
    )


def _get_peer(connection: socket.socket) -> str | None:
    """Return the address at the other end of a TCP connection; None for other sockets."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return None
    return str(connection.getpeername()[0]).removeprefix("::ffff:")
