"""The golden matrix: UPDATE_GOLDEN=1 rewrites it, and git shows which cases a changed line of a profile reaches."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fabric.node_sets import CASES

from rlt_operator.fabric.explain import explain
from rlt_operator.fabric.profiles import load

GOLDEN = Path(__file__).parent / "golden"
KEYS = [
    "profile",
    "fabric",
    "vendor",
    "agree",
    "candidates",
    "refused",
    "evidence",
    "env",
    "overriddenByUser",
    "attach",
    "warnings",
]


@pytest.mark.parametrize("name", CASES)
def test_a_node_set_gets_what_the_golden_file_says(name: str) -> None:
    answer = explain(CASES[name].nodes, CASES[name].demand)
    file = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")
    assert answer == json.loads(file.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_node_set_gets_its_profile_or_its_refusal(name: str) -> None:
    case = CASES[name]
    answer = explain(case.nodes, case.demand)
    assert list(answer) == KEYS
    assert (answer["profile"], answer["fabric"], answer["agree"]) == (case.profile, case.fabric, case.agree)
    assert (answer["refused"] or {}).get("code") == case.refused
    for words in case.warns:
        assert any(words in warning for warning in answer["warnings"]), answer["warnings"]


def test_there_is_a_golden_file_for_each_case_and_no_other() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)


def test_every_profile_is_in_the_matrix_but_those_of_machines_that_nobody_lists() -> None:
    assert set(load()) - {case.profile for case in CASES.values()} <= {"generic-amd", "aws-efa-nvl72"}
