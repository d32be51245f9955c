"""The semantics of NetworkPolicies for incoming connections: who reaches a pod on a port.

From the API reference of networking.k8s.io/v1: policies are additive, a pod that no policy selects is open, a peer
with two selectors needs both, a podSelector alone selects in the namespace of the policy, and selectors do not select
pods on the network of a node.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A pod, or an address outside of all pods without labels."""

    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    is_pod: bool = True
    """False for hosts and for pods on the network of their node."""


def is_admitted(policies: Iterable[Json], source: Endpoint, target: Endpoint, port: int) -> bool:
    """Whether the policies admit a TCP connection."""
    selecting = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], target.labels)
    ]
    return not selecting or any(
        _admits_port(rule, port) and any(_selects(peer, source, policy) for peer in rule["from"])
        for policy in selecting
        for rule in policy["spec"]["ingress"]
    )


def matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches."""
    operators = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, values: value is not None,
        "DoesNotExist": lambda value, values: value is None,
    }
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        operators[each["operator"]](labels.get(each["key"]), each.get("values", []))
        for each in selector.get("matchExpressions", [])
    )


def _selects(peer: Json, source: Endpoint, policy: Json) -> bool:
    if "ipBlock" in peer:
        assert set(peer) == {"ipBlock"}
        return ipaddress.ip_address(source.address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])
    if not source.is_pod:
        return False
    if "namespaceSelector" in peer:
        in_namespace = matches(peer["namespaceSelector"], source.namespace_labels)
    else:
        in_namespace = source.namespace == policy["metadata"]["namespace"]
    return in_namespace and matches(peer.get("podSelector", {}), source.labels)


def _admits_port(rule: Json, port: int) -> bool:
    return "ports" not in rule or any(each["port"] == port and each["protocol"] == "TCP" for each in rule["ports"])
