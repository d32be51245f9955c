"""Network of the nodes: a bridge on the machine, a veth pair to the namespace of each node, and routes to its pods.

Services, pods and the nftables rules of kube-proxy are in the namespaces of the nodes, isolated from a Docker or
Kubernetes on the machine. The machine itself has the bridge, the routes and one nftables table for masquerading.
"""

import ipaddress
import json
import shutil
import subprocess
from pathlib import Path

from rlt_e2e.cluster.layout import Layout, Node


def has_bridge(layout: Layout) -> bool:
    return Path("/sys/class/net", layout.bridge).exists()


def find_conflict(layout: Layout, routes: list[dict[str, str]]) -> str | None:
    """Return the first of `routes` (from ``ip --json route``) that is inside the cluster's /16 or equal to it."""
    wanted = ipaddress.ip_network(layout.network)
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == layout.bridge:
            continue
        other = ipaddress.ip_network(route["dst"], strict=False)
        if other.version == 4 and other.prefixlen >= wanted.prefixlen and other.overlaps(wanted):
            return f"{route['dst']} (device {route.get('dev')})"
    return None


def list_routes() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(_run("ip", "--json", "-4", "route", "show") or "[]")
    return found


def create(layout: Layout) -> None:
    """Create the bridge, and enable forwarding and masquerading of packets that leave the machine."""
    bridge = layout.bridge
    _ip("link", "add", bridge, "type", "bridge")
    _ip("address", "add", f"{layout.machine}/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    _ip("route", "add", layout.network, "dev", bridge)  # packets to unused addresses do not leave the machine
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _nft(
        f"""table ip {bridge} {{
          chain postrouting {{
            type nat hook postrouting priority srcnat
            ip saddr {layout.network} oifname != "{bridge}" masquerade
          }}
        }}"""
    )
    if drops_forwarded_packets():
        for rule in _build_accept_rules(layout):
            _run("iptables", "--insert", "FORWARD", *rule)


def attach(layout: Layout, node: Node, pid: int) -> None:
    """Connect the network namespace of process `pid` to the bridge with the addresses of `node`."""
    _ip("link", "add", node.veth, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("link", "set", node.veth, "master", layout.bridge, "up")
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net"]
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "address", "add", f"{node.address}/24", "dev", "eth0")
    _run(*inside, "ip", "link", "set", "eth0", "up")
    _run(*inside, "ip", "route", "add", "default", "via", layout.machine)
    for other in layout.all_nodes():
        if other != node:
            _run(*inside, "ip", "route", "add", other.pods, "via", other.address)
    _run(*inside, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    _ip("route", "add", node.pods, "via", node.address)


def set_link(node: Node, *, is_up: bool) -> None:
    _ip("link", "set", node.veth, "up" if is_up else "down")


def remove(layout: Layout) -> None:
    """Remove all parts of the network that exist."""
    for node in layout.all_nodes():
        delete_link(node.veth)
    if has_bridge(layout):
        _ip("link", "delete", layout.bridge)
    tables = json.loads(_run("nft", "--json", "list", "tables"))["nftables"]
    if any(entry.get("table", {}).get("name") == layout.bridge for entry in tables):
        _nft(f"delete table ip {layout.bridge}")
    if drops_forwarded_packets():
        for rule in _build_accept_rules(layout):
            if subprocess.run(["iptables", "--check", "FORWARD", *rule], capture_output=True).returncode == 0:
                _run("iptables", "--delete", "FORWARD", *rule)


def drops_forwarded_packets() -> bool:
    """Whether the machine drops forwarded packets by default, as Docker and most firewalls set it."""
    return bool(shutil.which("iptables")) and "-P FORWARD DROP" in _run("iptables", "--list-rules", "FORWARD")


def _build_accept_rules(layout: Layout) -> list[list[str]]:
    return [[f"--{side}-interface", layout.bridge, "--jump", "ACCEPT"] for side in ("in", "out")]


def delete_link(name: str) -> None:
    """Delete a link. The kernel removes a veth with the namespace of its node, possibly during this call."""
    try:
        _ip("link", "delete", name)
    except ValueError:
        if Path("/sys/class/net", name).exists():
            raise


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _nft(rules: str) -> None:
    _run("nft", "-f", "-", text=rules)


def _run(*command: str, text: str | None = None) -> str:
    answer = subprocess.run(command, input=text, capture_output=True, text=True)
    if answer.returncode:
        raise ValueError(f"{' '.join(command)}: {answer.stderr.strip()}")
    return answer.stdout
