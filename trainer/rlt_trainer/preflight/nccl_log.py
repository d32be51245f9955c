"""What NCCL says of its network in its log (NCCL_DEBUG=INFO). Pure.

The lines are NCCL's own (src/transport/net.cc, src/init.cc): `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`
and `Using network IB`. RCCL writes the same.
"""

from __future__ import annotations

import re

TCP = "Socket"
"""NCCL's own transport over TCP."""
_CHANNEL = re.compile(r"NCCL INFO (?:Channel|Ring) .* via (?P<kind>NET|P2P|SHM|DIRECT)/?(?P<name>[^/\n]*)")
_USING = re.compile(r"NCCL INFO Using network (?P<name>.*?)[ \t\r]*$", re.MULTILINE)


def transports(log: str) -> tuple[str, ...]:
    """The networks that connections between nodes go over, such as IB, Libfabric or Socket: sorted, each once.

    Where channels are named, they say it: none goes over a network if all ranks are on one node. Else what NCCL has
    chosen to use.
    """
    channels = list(_CHANNEL.finditer(log))
    if channels:
        return tuple(sorted({channel["name"] for channel in channels if channel["kind"] == "NET"}))
    return tuple(sorted({using["name"] for using in _USING.finditer(log)}))
