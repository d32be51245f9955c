"""Node affinity, nodeSelector and tolerations of a podTemplate."""

from __future__ import annotations

from typing import Any

import pytest
from fabric.node_builders import GPUS, node, nvidia
from fabric.test_demand import demanded

from rlt_core.fabric.candidates import find_candidates
from rlt_core.fabric.nodes import parse_nodes

NODES = parse_nodes(
    [
        node("a", nvidia() | {"rack": "1", "size": "8"}, GPUS),
        node("b", nvidia() | {"rack": "2", "size": "16"}, GPUS),
        node("c", nvidia(), GPUS, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
    ]
)


def chosen(**pod: Any) -> list[str]:
    """Names of the candidates for a group with this pod spec in its podTemplate."""
    group = {
        "resources": {"cpu": "1", "memory": "64Gi"},
        "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
        "podTemplate": {"spec": pod},
    }
    return [
        each.name for each in find_candidates(NODES, demanded({"cluster": {"image": "i", "workers": [group]}})).nodes
    ]


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"key": "rack", "operator": "In", "values": ["2", "3"]}, ["b"]),
        ({"key": "rack", "operator": "NotIn", "values": ["2"]}, ["a"]),
        ({"key": "rack", "operator": "Exists"}, ["a", "b"]),
        ({"key": "rack", "operator": "DoesNotExist"}, []),
        ({"key": "size", "operator": "Gt", "values": ["8"]}, ["b"]),
        ({"key": "size", "operator": "Lt", "values": ["9"]}, ["a"]),
    ],
)
def test_required_affinity_selects_nodes(requirement: dict[str, Any], expected: list[str]) -> None:
    assert chosen(**affinity({"matchExpressions": [requirement]})) == expected


def test_a_node_matches_if_all_requirements_of_one_term_match() -> None:
    rack = {"key": "rack", "operator": "Exists"}
    large = {"key": "size", "operator": "Gt", "values": ["8"]}
    assert chosen(**affinity({"matchExpressions": [rack, large]})) == ["b"]
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    assert chosen(**affinity({"matchExpressions": [rack, large]}, named)) == ["a", "b"]
    assert chosen(**affinity({})) == []


def test_node_selector_and_tolerations_of_the_template_apply() -> None:
    assert chosen(nodeSelector={"rack": "1"}) == ["a"]
    assert chosen(tolerations=[{"key": "team", "operator": "Exists"}]) == ["a", "b", "c"]
    assert chosen() == ["a", "b"]
