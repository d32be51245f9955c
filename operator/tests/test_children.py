"""The children's manifests, against golden files. UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml

from rlt_operator.children.config_map import config_map, training_config
from rlt_operator.children.raycluster import ray_cluster, shared_memory
from rlt_operator.observation import Job, Manifest, parse_job

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples"

GPU_SPEC: dict[str, Any] = {
    **o.SPEC,
    "model": {"path": "/mnt/runs/models/qwen"},
    "data": {"preset": "gsm8k", "path": "/mnt/runs/gsm8k"},
    "training": {"totalSteps": 100, "trainBatchSize": 128},
    "storage": {"claimName": "runs", "mountPath": "/mnt/runs"},
    "checkpoint": {"saveFreq": 10},
    "cluster": {
        "image": "registry.example/rlt-trainer:cuda",
        "head": {"nodeSelector": {"pool": "cpu"}},
        "workers": [
            {
                "name": "h100",
                "replicas": 2,
                "resources": {"cpu": "32", "memory": "512Gi", "sharedMemory": "64Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
                "nodeSelector": {"pool": "h100"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {}],
            }
        ],
    },
}


def example(path: Path) -> Job:
    manifest = yaml.safe_load(path.read_text())
    metadata = {"namespace": "default", "uid": o.UID, "generation": 1, "resourceVersion": "1", **manifest["metadata"]}
    return parse_job(manifest | {"metadata": metadata})


JOBS = {
    "arithmetic": o.job(),
    "command": o.job(o.COMMAND_SPEC),
    "gpu": o.job(GPU_SPEC),
    **{path.stem: example(path) for path in sorted(EXAMPLES.glob("*.yaml"))},
}


class Readable(yaml.SafeDumper):
    """YAML with texts of several lines as blocks."""


Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def children(job: Job) -> list[Manifest]:
    assert job.spec
    made = [ray_cluster(job, job.spec)]
    return made if job.spec.framework.type == "command" else [config_map(job, job.spec), *made]


@pytest.mark.parametrize("name", JOBS)
def test_children_are_as_they_were(name: str) -> None:
    text = yaml.dump_all(children(JOBS[name]), Dumper=Readable, sort_keys=False, width=120)
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert golden.exists(), "UPDATE_GOLDEN=1 writes it"
    assert text == golden.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(JOBS)


def test_the_run_directory_is_the_jobs_own() -> None:
    job = JOBS["gpu"]
    assert job.spec
    assert training_config(job, job.spec).run_directory == "/mnt/runs/runs/sum-11111111"


@pytest.mark.parametrize(("preset", "reward"), [("arithmetic", "exact"), ("gsm8k", "gsm8k")])
def test_rewards_follow_the_data(preset: str, reward: str) -> None:
    job = o.job({**o.SPEC, "data": {"preset": preset, "path": "/d"}})
    assert job.spec
    assert [rule.name for rule in training_config(job, job.spec).rewards] == [reward]


def test_shared_memory_is_a_quarter_unless_said() -> None:
    job = o.job()
    assert job.spec
    assert shared_memory(job.spec.cluster.workers[0].resources) == 2**30


def test_no_pod_has_a_privilege() -> None:
    for job in JOBS.values():
        assert job.spec
        spec = ray_cluster(job, job.spec)["spec"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            pod = group["template"]["spec"]
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["containers"][0]["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
