"""Properties of every node set and every user input."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabric.node_builders import GPUS, HCA, IB, TYPE, Manifest, node, nvidia
from fabric.node_set import NVIDIA, Case
from fabric.node_sets import CASES
from hypothesis import given
from hypothesis import strategies as st

from rlt_core.fabric import aliases
from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.fabric.profiles import load_profiles

KINDS = [each for name in sorted(CASES) for each in CASES[name].nodes]
names = st.sampled_from(
    sorted({variable.name for profile in load_profiles().values() for variable in profile.env} | {"NCCL_ALGO"})
)
values = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20)


def renamed(nodes: list[Manifest]) -> list[Manifest]:
    """The nodes as one fleet with unique names."""
    return [each | {"metadata": each["metadata"] | {"name": f"n{index}"}} for index, each in enumerate(nodes)]


matrix = st.sampled_from(sorted(CASES)).map(CASES.__getitem__)
mixed = st.builds(replace, matrix, nodes=st.lists(st.sampled_from(KINDS), max_size=6).map(renamed))
cases = matrix | mixed
"""A case of the matrix, or its demand with nodes of all cases."""


def explain_case(case: Case, nodes: list[Manifest] | None = None, **changes: Any) -> dict[str, Any]:
    return explain_fabric(case.nodes if nodes is None else nodes, replace(case.demand, **changes))


@given(case=cases, variables=st.dictionaries(names, values, min_size=1))
def test_the_users_value_is_never_overridden(case: Case, variables: dict[str, str]) -> None:
    found = explain_case(case, user_env=tuple(variables.items()))
    env = {setting["name"]: setting for setting in found["env"]}
    for name, value in variables.items():
        if name in env:
            assert (env[name]["value"], env[name]["source"]) == (value, "user: spec.cluster.env")
        else:
            assert name == "LD_LIBRARY_PATH"  # not a network variable: missing unless the profile sets it


@given(case=cases, variables=st.dictionaries(names, values, min_size=1))
def test_user_has_precedence_over_admin_and_admin_over_profile(case: Case, variables: dict[str, str]) -> None:
    given = tuple(variables.items())
    by_admin = explain_case(case, user_env=(), admin_env=given, socket_interface=None, hcas=())
    assert not by_admin["overriddenByUser"]
    assert {s["value"] for s in by_admin["env"] if s["name"] in variables} <= set(variables.values())
    by_both = explain_case(case, user_env=given, admin_env=tuple((name, "admin") for name in variables))
    assert {s["source"] for s in by_both["env"] if s["name"] in variables} <= {"user: spec.cluster.env"}


@given(case=cases, seed=st.integers(0, 1000))
def test_the_order_of_nodes_and_labels_does_not_matter(case: Case, seed: int) -> None:
    nodes = [dict(each) for each in case.nodes]
    shuffle = random.Random(seed).shuffle
    shuffle(nodes)
    for each in nodes:
        labels = list(each["metadata"]["labels"].items())
        shuffle(labels)
        each["metadata"] = each["metadata"] | {"labels": dict(labels)}
    assert explain_case(case, nodes) == explain_case(case)


@given(
    case=cases,
    key=st.from_regex(r"\A[a-z]{1,8}\.example\.com/[a-z]{1,8}\Z"),
    value=st.from_regex(r"\A[a-z0-9]{0,9}\Z"),
    every=st.integers(1, 3),
)
def test_an_unrelated_label_changes_nothing(case: Case, key: str, value: str, every: int) -> None:
    nodes = list(case.nodes)
    for index in range(0, len(nodes), every):
        metadata = nodes[index]["metadata"]
        nodes[index] = nodes[index] | {"metadata": metadata | {"labels": metadata["labels"] | {key: value}}}
    assert explain_case(case, nodes) == explain_case(case)


@given(case=cases, variables=st.dictionaries(names, st.just("value")), by_user=st.booleans())
def test_every_variable_has_value_rule_and_source(case: Case, variables: dict[str, str], by_user: bool) -> None:
    given = tuple(variables.items())
    for setting in explain_case(case, user_env=given if by_user else (), admin_env=() if by_user else given)["env"]:
        assert all(setting[key].strip() for key in ("name", "value", "rule", "source")), setting


ANSWERS = """
import json
from fabric.node_sets import CASES
from rlt_core.fabric.decision import explain_fabric
print(json.dumps({name: explain_fabric(case.nodes, case.demand) for name, case in CASES.items()}))
"""


def test_the_decision_is_deterministic() -> None:
    """Two processes with different string hashes, so that the order of sets would show."""
    paths = os.pathsep.join(["operator/tests", *sys.path])
    first, second = (
        subprocess.run(
            [sys.executable, "-c", ANSWERS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second


@given(case=cases)
def test_require_rdma_is_rejected_or_satisfied(case: Case) -> None:
    found = explain_case(case, require="rdma")
    assert found["rejection"] or found["fabric"].removeprefix("mnnvl+") in ("infiniband", "roce", "efa", "gib")


@pytest.mark.parametrize("taint", aliases.HEALTH_TAINTS)
def test_a_node_with_a_health_taint_is_unhealthy(taint: str) -> None:
    manifest = node("n", nvidia(), GPUS, taints=[{"key": taint, "effect": "NoSchedule"}])
    assert parse_nodes([manifest])[0].unhealthy_reason is not None


def test_time_grows_linearly_with_the_number_of_nodes() -> None:
    def fleet(size: int) -> list[Manifest]:
        labels = nvidia() | IB | {f"l{number}.example.com/x": "y" for number in range(30)}
        return [node(f"n{number}", labels | {TYPE: f"type-{number % 10}"}, GPUS | HCA) for number in range(size)]

    def seconds(nodes: list[Manifest]) -> float:
        def once() -> float:
            start = time.process_time()
            explain_fabric(nodes, NVIDIA)
            return time.process_time() - start

        return min(once() for _ in range(10))

    few = fleet(50)
    many = fleet(500)
    assert seconds(many) < 2 * (500 / 50) * seconds(few)
