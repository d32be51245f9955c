"""The golden matrix: status.network and the rendered worker of every node set.

UPDATE_GOLDEN=1 writes the files; git shows which cases a change affects.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric.jobs import expected_demand, job_of
from fabric.node_sets import CASES
from observed import decided

from rlt_core.children.pod_template import build_worker_template
from rlt_core.children.programs import name_programs
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
    "rejection",
    "evidence",
    "env",
    "overriddenByUser",
    "attach",
    "warnings",
]


class OneALine(yaml.CSafeDumper):
    """YAML with one line per variable, mount and sentence."""


def _mapping(dumper: OneALine, value: dict[str, Any]) -> yaml.Node:
    flat = len(value) > 1 and not any(isinstance(each, dict | list) for each in value.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=flat or not value)


OneALine.add_representer(dict, _mapping)


@cache
def decided_job(name: str) -> Job:
    """The job of the case with status.network for its nodes."""
    return decided(job_of(CASES[name].demand), parse_nodes(CASES[name].nodes))


def demands_of_job(job: Job) -> tuple[Demand, ...]:
    assert job.spec
    assert job.runtime
    return build_demands(job.spec, job.submitted_spec, job.runtime.accelerators)


@cache
def document(name: str) -> dict[str, Any]:
    """The content of the golden file."""
    job = decided_job(name)
    assert job.spec
    assert job.status.network
    template = build_worker_template(job, job.spec, job.spec.cluster.workers[0])
    return {"network": job.status.network.to_json(), "worker": template}


@pytest.mark.parametrize("name", CASES)
def test_the_decision_equals_the_golden_file(name: str) -> None:
    text = yaml.dump(document(name), Dumper=OneALine, sort_keys=False, width=1000)
    text = text.replace(name_programs(), "rlt-programs-DIGEST")
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_a_node_set_gets_its_profile_or_rejection(name: str) -> None:
    case = CASES[name]
    explained = explain_fabric(case.nodes, case.demand)
    assert list(explained) == KEYS
    assert (explained["profile"], explained["fabric"], explained["agree"]) == (case.profile, case.fabric, case.agree)
    assert (explained["rejection"] or {}).get("code") == case.rejected
    for text in case.warns:
        assert any(text in warning for warning in explained["warnings"]), explained["warnings"]


@pytest.mark.parametrize(
    ("name", "texts"),
    {
        "contradictory-product": ["H100", "NVIDIA-A100-SXM4-40GB", "p5.48xlarge", "correct the labels"],
        "no-such-resource": ["nvidia.com/gpu", "none of 2 nodes", "check the name"],
        "stale-count-label": ["nvidia.com/gpu.count=8", "allocatable has 0", "resourceslices", "on node-1, node-2"],
        "stale-count-label-amd": ["beta.amd.com/gpu.device-id.74a1=8", "run the device plugin"],
        "dra-driver-alone": ["a DRA driver offers its GPUs as ResourceSlices", "gke-nvidia-gpu-dra-driver=true"],
        "gpu-hardware-without-plugin": ["pci-10de.present=true", "device plugin does not run"],
        "mig-slices-instead-of-gpus": ["they have nvidia.com/mig-3g.40gb"],
        "gaudi-nodes-for-a-cuda-job": ["habana.ai/gaudi (Intel Gaudi, not supported)"],
        "hcas-match-nothing": ["mlx5_0,mlx5_1", "begin with ibp", "correct network.hcas"],
        "user-disables-ib": ["NCCL_IB_DISABLE=1", "user: spec.cluster.env", "remove the variable"],
        "onprem-dra-without-a-claim": ["resourceClaims", "podTemplate of the workers"],
        "two-vendors": ["amd.com/gpu and nvidia.com/gpu", "of one vendor only"],
        "more-than-any-node": ["16 of nvidia.com/gpu", "the maximum is 8", "request at most 8"],
    }.items(),
)
def test_a_rejection_gives_the_evidence_and_the_fix(name: str, texts: list[str]) -> None:
    message = explain_fabric(CASES[name].nodes, CASES[name].demand)["rejection"]["message"]
    assert [each for each in texts if each not in message] == [], message


@pytest.mark.parametrize("name", CASES)
def test_the_status_equals_the_offline_explanation(name: str) -> None:
    job = decided_job(name)
    assert job.status.network
    explained = explain_fabric(CASES[name].nodes, *demands_of_job(job))
    status = job.status.network.to_json()
    for key in ("profile", "fabric", "vendor", "agree", "evidence", "env", "overriddenByUser", "warnings"):
        assert status.get(key, []) == explained[key]
    assert status.get("rejection") == explained["rejection"]
    attach = {"mode": status["attach"]["mode"], "resources": status["attach"].get("resources", {})}
    assert attach == explained["attach"]
    assert status["candidates"] == len(explained["candidates"])


@pytest.mark.parametrize("name", CASES)
def test_the_job_of_a_case_has_its_demand(name: str) -> None:
    assert demands_of_job(job_of(CASES[name].demand)) == (expected_demand(CASES[name].demand),)


@pytest.mark.parametrize("name", CASES)
def test_the_container_has_every_variable_of_the_status(name: str) -> None:
    job = decided_job(name)
    assert job.status.network
    (container,) = document(name)["worker"]["spec"]["containers"]
    has = {each["name"]: each["value"] for each in container["env"]}
    assert {each.name: each.value for each in job.status.network.env}.items() <= has.items()


@pytest.mark.parametrize("name", ["azure-dra", "aws-dra", "onprem-dra"])
def test_a_resource_claim_replaces_the_device_plugin(name: str) -> None:
    pod = document(name)["worker"]["spec"]
    (claim,) = pod["resourceClaims"]
    (container,) = pod["containers"]
    assert container["resources"]["claims"] == [{"name": claim["name"]}]
    assert set(container["resources"]["limits"]) == {"cpu", "memory", "nvidia.com/gpu"}
    assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]


def test_every_golden_file_has_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


def test_the_matrix_covers_every_profile_of_listed_machines() -> None:
    assert set(load_profiles()) - {case.profile for case in CASES.values()} <= {"generic-amd", "aws-efa-nvl72"}
