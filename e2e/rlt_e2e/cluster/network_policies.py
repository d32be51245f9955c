"""Enforce a NetworkPolicy on the pods that exist, by nftables on the nodes, as a network plugin would.

It supports what the policy of sandbox pods has: peers with `podSelector` and `matchLabels`, ports of TCP, and egress
without rules. Packets of the nodes themselves, such as probes of the kubelet, are not limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.node import run_on_node

TABLE = "rlt-policy"
Manifest = Mapping[str, Any]


@contextmanager
def enforce(layout: Layout, policy: Manifest, pods: Iterable[Manifest]) -> Iterator[None]:
    """Reject what `policy` does not admit, until the end. `pods` are all pods of its namespace."""
    rules = build_rules(policy["spec"], list(pods))
    nodes = [node.name for node in layout.all_nodes()]
    for node in nodes:
        run_on_node(layout, node, "nft", rules)
    try:
        yield
    finally:
        for node in nodes:
            run_on_node(layout, node, "nft", f"delete table ip {TABLE}")


def build_rules(spec: Manifest, pods: list[Manifest]) -> str:
    """Build the table of nftables for the spec of a policy."""
    selected = _list_addresses(spec["podSelector"], pods)
    assert not spec.get("egress")
    chains = {
        "forward": [f"ip saddr {selected} reject", *_build_ingress(spec, selected, pods)],
        "input": [f"ip saddr {selected} reject"],  # from a pod to its node
    }
    built = (
        f"chain {hook} {{ type filter hook {hook} priority filter - 10; ct state established,related accept; "
        f"{'; '.join(rules)}; }}"
        for hook, rules in chains.items()
    )
    return f"table ip {TABLE} {{ {'; '.join(built)}; }}"


def _build_ingress(spec: Manifest, selected: str, pods: list[Manifest]) -> Iterator[str]:
    for rule in spec["ingress"]:
        for port in rule["ports"]:
            assert port["protocol"] == "TCP"
            for peer in rule["from"]:
                sources = _list_addresses(peer["podSelector"], pods)
                yield f"ip saddr {sources} ip daddr {selected} tcp dport {port['port']} accept"
    yield f"ip daddr {selected} reject"


def _list_addresses(selector: Manifest, pods: list[Manifest]) -> str:
    """Return a set of nftables with the addresses of the selected pods."""
    wanted = selector["matchLabels"].items()
    addresses = [pod["status"]["podIP"] for pod in pods if wanted <= pod["metadata"]["labels"].items()]
    return f"{{ {', '.join(addresses)} }}"
