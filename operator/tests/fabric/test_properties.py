"""What holds for every node set, whatever a user gives."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from fabric.node_sets import CASES, GPUS, HCA, IB, NVIDIA, Case, Manifest, node, nvidia
from hypothesis import given
from hypothesis import strategies as st

from rlt_operator.fabric import aliases
from rlt_operator.fabric.candidates import illness
from rlt_operator.fabric.explain import explain, network
from rlt_operator.fabric.nodes import Node, nodes_of
from rlt_operator.fabric.profiles import load

cases = st.sampled_from(sorted(CASES)).map(CASES.__getitem__)
names = st.sampled_from(
    sorted({variable.name for profile in load().values() for variable in profile.env} | {"NCCL_ALGO"})
)
values = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=20)


def answer(case: Case, nodes: list[Manifest] | None = None, **changes: Any) -> dict[str, Any]:
    return explain(case.nodes if nodes is None else nodes, replace(case.demand, **changes))


@given(case=cases, variables=st.dictionaries(names, values, min_size=1))
def test_the_users_value_always_survives(case: Case, variables: dict[str, str]) -> None:
    found = answer(case, user_env=tuple(variables.items()))
    told = {setting["name"]: setting for setting in found["env"]}
    for name, value in variables.items():
        if name in told:
            assert (told[name]["value"], told[name]["source"]) == (value, "user: spec.cluster.env")
        else:
            assert name == "LD_LIBRARY_PATH", "only a variable that this profile does not set may be left unsaid"


@given(case=cases, variables=st.dictionaries(names, values, min_size=1))
def test_the_users_value_goes_before_the_admins_and_that_before_the_profiles(
    case: Case, variables: dict[str, str]
) -> None:
    given = tuple(variables.items())
    by_admin = answer(case, user_env=(), admin_env=given, socket_interface=None, hcas=())
    assert not by_admin["overriddenByUser"]
    assert {s["value"] for s in by_admin["env"] if s["name"] in variables} <= set(variables.values())
    by_both = answer(case, user_env=given, admin_env=tuple((name, "admin") for name in variables))
    assert {s["source"] for s in by_both["env"] if s["name"] in variables} <= {"user: spec.cluster.env"}


@given(case=cases, seed=st.integers(0, 1000))
def test_neither_the_order_of_nodes_nor_of_labels_matters(case: Case, seed: int) -> None:
    nodes = [dict(each) for each in case.nodes]
    shuffle = random.Random(seed).shuffle
    shuffle(nodes)
    for each in nodes:
        labels = list(each["metadata"]["labels"].items())
        shuffle(labels)
        each["metadata"] = each["metadata"] | {"labels": dict(labels)}
    assert answer(case, nodes) == answer(case)


@given(
    case=cases, key=st.from_regex(r"\A[a-z]{1,8}\.example\.com/[a-z]{1,8}\Z"), value=st.from_regex(r"\A[a-z0-9]{0,9}\Z")
)
def test_an_unrelated_label_changes_nothing(case: Case, key: str, value: str) -> None:
    nodes = [
        each | {"metadata": each["metadata"] | {"labels": each["metadata"]["labels"] | {key: value}}}
        for each in case.nodes
    ]
    assert answer(case, nodes) == answer(case)


@pytest.mark.parametrize("name", CASES)
def test_no_variable_is_without_value_rule_and_source(name: str) -> None:
    for setting in answer(CASES[name])["env"]:
        assert all(setting[key].strip() for key in ("name", "value", "rule", "source")), setting


@pytest.mark.parametrize("name", CASES)
def test_two_runs_are_identical(name: str) -> None:
    assert answer(CASES[name]) == answer(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_rdma_is_never_promised_on_tcp(name: str) -> None:
    found = answer(CASES[name], require="rdma")
    assert found["refused"] or found["fabric"].removeprefix("mnnvl+") in ("infiniband", "roce", "efa", "gib")


@pytest.mark.parametrize("taint", aliases.HEALTH_TAINTS)
def test_a_tolerated_health_taint_is_avoided_too(taint: str) -> None:
    manifest = node("n", nvidia(), GPUS, taints=[{"key": taint, "effect": "NoSchedule"}])
    assert illness(nodes_of([manifest])[0]) is not None


def test_time_grows_no_faster_than_the_number_of_nodes() -> None:
    def fleet(size: int) -> tuple[Node, ...]:
        labels = nvidia() | IB | {f"l{n}.example.com/x": "y" for n in range(30)}
        return nodes_of(
            [node(f"n{n}", labels | {"topology.kubernetes.io/zone": f"z{n % 8}"}, GPUS | HCA) for n in range(size)]
        )

    def seconds(nodes: tuple[Node, ...]) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            network(nodes, NVIDIA)
            best = min(best, time.perf_counter() - start)
        return best

    few, many = fleet(250), fleet(2000)
    assert seconds(many) < 8 * 3 * seconds(few)
