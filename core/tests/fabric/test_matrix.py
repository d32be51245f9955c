"""The golden matrix: status.network and the rendered worker of every node set.

UPDATE_GOLDEN=1 rewrites it, and git shows which cases a changed line of a profile reaches.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric.jobs import as_asked, job_of
from fabric.node_sets import CASES
from observed import decided

from rlt_core.children.pod_template import build_worker_template
from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.demand import Demand, build_demands
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.fabric.profiles import load_profiles
from rlt_core.job import Job

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


class OneALine(yaml.CSafeDumper):
    """YAML in which a variable, a mount or a sentence is a line."""


def _mapping(dumper: OneALine, value: dict[str, Any]) -> yaml.Node:
    flat = len(value) > 1 and not any(isinstance(each, dict | list) for each in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=flat or not value)


OneALine.add_representer(dict, _mapping)


@cache
def on_its_nodes(name: str) -> Job:
    """The case's job after the operator's look at the case's nodes."""
    return decided(job_of(CASES[name].demand), parse_nodes(CASES[name].nodes))


def demands_in(job: Job) -> tuple[Demand, ...]:
    assert job.spec
    assert job.runtime
    return build_demands(job.spec, job.given, job.runtime.spec)


@cache
def document(name: str) -> dict[str, Any]:
    """What the golden file holds."""
    job = on_its_nodes(name)
    assert job.spec
    assert job.status.network
    template = build_worker_template(job, job.spec, job.spec.cluster.workers[0])
    return {"network": job.status.network.to_json(), "worker": template}


@pytest.mark.parametrize("name", CASES)
def test_a_node_set_gets_what_the_golden_file_says(name: str) -> None:
    text = yaml.dump(document(name), Dumper=OneALine, sort_keys=False, width=1000)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_a_node_set_gets_its_profile_or_its_refusal(name: str) -> None:
    case = CASES[name]
    answer = explain_fabric(case.nodes, case.demand)
    assert list(answer) == KEYS
    assert (answer["profile"], answer["fabric"], answer["agree"]) == (case.profile, case.fabric, case.agree)
    assert (answer["refused"] or {}).get("code") == case.refused
    for words in case.warns:
        assert any(words in warning for warning in answer["warnings"]), answer["warnings"]


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "contradictory-product": ["H100", "NVIDIA-A100-SXM4-40GB", "p5.48xlarge", "correct the labels"],
        "no-such-resource": ["nvidia.com/gpu", "none of 2 nodes", "check the name"],
        "hcas-match-nothing": ["mlx5_0,mlx5_1", "begin with ibp", "correct network.hcas"],
        "user-disables-ib": ["NCCL_IB_DISABLE=1", "user: spec.cluster.env", "remove the variable"],
        "two-vendors": ["amd.com/gpu and nvidia.com/gpu", "of one vendor only"],
        "more-than-any-node": ["16 of nvidia.com/gpu", "the most is 8", "ask for at most 8"],
    }.items(),
)
def test_a_refusal_gives_the_evidence_and_the_fix(name: str, words: list[str]) -> None:
    message = explain_fabric(CASES[name].nodes, CASES[name].demand)["refused"]["message"]
    assert [each for each in words if each not in message] == [], message


@pytest.mark.parametrize("name", CASES)
def test_the_status_says_what_is_explained_offline(name: str) -> None:
    job = on_its_nodes(name)
    assert job.status.network
    answer = explain_fabric(CASES[name].nodes, *demands_in(job))
    said = job.status.network.to_json()
    for key in ("profile", "fabric", "vendor", "agree", "evidence", "env", "overriddenByUser", "warnings"):
        assert said[key] == answer[key]
    assert said.get("refused") == answer["refused"]
    assert (said["attach"]["mode"], said["attach"]["resources"]) == tuple(answer["attach"].values())
    assert said["candidates"] == len(answer["candidates"])


@pytest.mark.parametrize("name", CASES)
def test_the_jobs_of_the_matrix_ask_what_their_cases_say(name: str) -> None:
    assert demands_in(job_of(CASES[name].demand)) == (as_asked(CASES[name].demand),)


@pytest.mark.parametrize("name", CASES)
def test_the_container_has_every_variable_that_the_status_tells_of(name: str) -> None:
    job = on_its_nodes(name)
    assert job.status.network
    (container,) = document(name)["worker"]["spec"]["containers"]
    has = {each["name"]: each["value"] for each in container["env"]}
    assert {each.name: each.value for each in job.status.network.env}.items() <= has.items()


def test_there_is_a_golden_file_for_each_case_and_no_other() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


def test_every_profile_is_in_the_matrix_but_those_of_machines_that_nobody_lists() -> None:
    assert set(load_profiles()) - {case.profile for case in CASES.values()} <= {"generic-amd", "aws-efa-nvl72"}
