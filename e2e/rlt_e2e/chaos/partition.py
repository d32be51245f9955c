"""Drop the packets between two pods, in the network namespace of one pod's node."""

from __future__ import annotations

import subprocess

from rlt_e2e.chaos.pods import Pod
from rlt_e2e.cluster import node
from rlt_e2e.cluster.layout import Layout

TABLE = "rlt-chaos"


def disconnect(layout: Layout, one: Pod, other: Pod) -> None:
    """Drop all packets between the two pods. Both still reach all others."""
    drop = [f"ip saddr {a.address} ip daddr {b.address} drop" for a, b in ((one, other), (other, one))]
    chain = "; ".join(["type filter hook forward priority filter - 10", *drop])
    run_on_node(layout, one.node, "nft", f"table ip {TABLE} {{ chain forward {{ {chain}; }}; }}")


def reconnect(layout: Layout, one: Pod) -> None:
    """Remove the rules. A repeated call has no effect."""
    run_on_node(layout, one.node, "nft", f"table ip {TABLE}; delete table ip {TABLE}")


def run_on_node(layout: Layout, name: str, *command: str) -> str:
    """Run a command in the namespaces of a node, and return its output. Raises ValueError with its error."""
    done = subprocess.run(node.build_command(layout, layout.node(name), *command), capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{name}: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
