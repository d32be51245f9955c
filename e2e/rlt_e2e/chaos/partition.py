"""Drop the packets between two pods, in the network namespace of one pod's node."""

from __future__ import annotations

from rlt_e2e.chaos.pods import Pod
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.node import run_on_node

TABLE = "rlt-chaos"


def disconnect(layout: Layout, one: Pod, other: Pod) -> None:
    """Drop all packets between the two pods. Both still reach all others."""
    drop = [f"ip saddr {a.address} ip daddr {b.address} drop" for a, b in ((one, other), (other, one))]
    chain = "; ".join(["type filter hook forward priority filter - 10", *drop])
    run_on_node(layout, one.node, "nft", f"table ip {TABLE} {{ chain forward {{ {chain}; }}; }}")


def reconnect(layout: Layout, one: Pod) -> None:
    """Remove the rules. A repeated call has no effect."""
    run_on_node(layout, one.node, "nft", f"table ip {TABLE}; delete table ip {TABLE}")
