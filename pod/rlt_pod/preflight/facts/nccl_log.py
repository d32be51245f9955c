"""Parsing of the networks in NCCL's log (NCCL_DEBUG=INFO). Pure.

The lines (src/transport/net.cc, src/init.cc in NCCL): `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA` and
`Using network IB`. RCCL writes the same lines.
"""

from __future__ import annotations

import re

TCP = "Socket"
"""NCCL's name of its TCP transport."""
_CHANNEL = re.compile(
    r"NCCL INFO (?:Channel|Ring) (?:(?!NCCL INFO).)* via (?P<kind>NET|P2P|SHM|DIRECT)/?(?P<name>[^/\n]*)"
)
_USING = re.compile(r"NCCL INFO Using network (?P<name>.*)")


def parse_transports(log: str) -> tuple[str, ...]:
    """Return the networks of connections between nodes, such as IB, Libfabric or Socket: sorted, without duplicates.

    If the log has lines of channels, they determine the result: empty if all ranks are on one node. Otherwise it is the
    network that NCCL selected.
    """
    channels = list(_CHANNEL.finditer(log))
    if channels:
        return tuple(sorted({channel["name"] for channel in channels if channel["kind"] == "NET"}))
    return tuple(sorted({using["name"].rstrip() for using in _USING.finditer(log)}))
