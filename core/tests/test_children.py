"""The manifests of the children, against golden files. UPDATE_GOLDEN=1 writes the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml

from rlt_api.frameworks.builtin.training_config import build_training_config
from rlt_api.rules.shared_memory import size_shared_memory
from rlt_core import names
from rlt_core.children.build import build_children
from rlt_core.children.config_map import build_config_map, build_config_volume
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.children.pod_template import build_template_dry_runs
from rlt_core.children.program import build_run
from rlt_core.children.programs import name_programs
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.children.sandboxes import build_sandbox_pool, get_sandbox
from rlt_core.job import Job, Manifest, parse_job, parse_runtime

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples"

GPU_SPEC: dict[str, Any] = {
    **o.SPEC,
    "model": {"path": "oci://registry.example.com:5000/models/qwen:v1"},
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


MAXIMAL_SPEC: dict[str, Any] = {
    "framework": {"type": "command", "command": ["python3", "-m", "verl.trainer.main_ppo"], "totalSteps": 9},
    "cluster": {
        "image": "registry.example/verl:cuda",
        "imagePullPolicy": "Always",
        "imagePullSecrets": ["registry"],
        "rayVersion": "2.60.0",
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "HF_TOKEN", "secretKeyRef": {"name": "hugging-face", "key": "token"}},
            {"name": "TEAM", "configMapKeyRef": {"name": "team", "key": "name"}},
            {"name": "HOME", "value": "/home/user"},
        ],
        "head": {
            "resources": {"cpu": "2", "memory": "8Gi"},
            "tolerations": [{"key": "system", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
            "podTemplate": {"metadata": {"labels": {"team": "a"}}, "spec": {"enableServiceLinks": False}},
        },
        "workers": [
            {
                "name": "h100",
                "replicas": 2,
                "numCpus": 24,
                "resources": {"cpu": "32", "memory": "512Gi", "sharedMemory": "64Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"},
                "nodeSelector": {"pool": "h100"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "podTemplate": {
                    "spec": {
                        "containers": [
                            {
                                "name": "ray-worker",
                                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                            }
                        ],
                        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Ti"}}],
                        "tolerations": [{"key": "night", "operator": "Exists"}],
                        "terminationGracePeriodSeconds": 60,
                    }
                },
            }
        ],
    },
    "scheduling": {"queueName": "team-a", "schedulerName": "volcano", "priorityClassName": "high"},
    "storage": {
        "claimName": "runs",
        "mountPath": "/mnt/runs",
        "modelCache": {"claimName": "models", "mountPath": "/mnt/models", "readOnly": True},
    },
    "observability": {
        "scrapeAnnotations": False,
        "timeline": {"enabled": True},
        "wandb": {
            "apiKey": {"name": "wandb", "key": "apiKey"},
            "entity": "rl",
            "baseUrl": "https://wandb.example",
            "proxy": "http://proxy.example:3128",
        },
        "tensorboard": {},
        "debugger": "legacy",
    },
    "security": {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 2000, "supplementalGroups": [44, 110]},
}


def example(path: Path) -> Job:
    manifest = stored(path)
    named = manifest["spec"].get("runtimeRef")
    runtime = parse_runtime(stored(EXAMPLES / "runtimes" / f"{named['name']}.yaml")) if named else None
    return o.decided(parse_job(manifest, runtime))


def stored(path: Path) -> Manifest:
    """The object in the file with the fields that the API server sets."""
    manifest: Manifest = yaml.safe_load(path.read_text())
    metadata = {"namespace": "default", "uid": o.UID, "generation": 1, "resourceVersion": "1", **manifest["metadata"]}
    return manifest | {"metadata": metadata}


SEPARATE_SPEC: Manifest = {
    **o.COMMAND_SPEC,
    "cluster": {
        "image": "registry.example/roll:0.2",
        "workers": [
            {
                "name": name,
                "replicas": replicas,
                "resources": {"cpu": "32", "memory": "512Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            }
            for name, replicas in (("train", 2), ("infer", 1))
        ],
    },
}
"""ROLL with disjoint device mappings: training on one group, generation on another."""

SANDBOX_SPEC: Manifest = {
    **o.SPEC,
    "rollout": {"multiTurn": {"tools": [{"name": "python"}], "sandbox": {"poolSize": 4}}},
}

AGENT_SANDBOX: Manifest = {"poolSize": 2, "provider": "AgentSandbox"}

JOBS = {
    "agent-sandbox": o.job(
        {**SANDBOX_SPEC, "rollout": {"multiTurn": {"tools": [{"name": "python"}], "sandbox": AGENT_SANDBOX}}}
    ),
    "arithmetic": o.job(),
    "command": o.job(o.COMMAND_SPEC),
    "command-separate": o.job(SEPARATE_SPEC),
    "gpu": o.job(GPU_SPEC),
    "maximal": o.job(MAXIMAL_SPEC),
    "sandbox": o.job(SANDBOX_SPEC),
    **{path.stem: example(path) for path in sorted([*EXAMPLES.glob("0*.yaml"), *EXAMPLES.glob("10-*.yaml")])},
}


ACCESS = NetworkAccess("rlt-system", ("monitoring",), ("10.0.0.1/32",))


class Readable(yaml.SafeDumper):
    """YAML with multi-line strings as blocks."""


Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def children(job: Job) -> list[Manifest]:
    assert job.spec
    children = [*build_children(job, job.spec, ACCESS)]
    if sandbox := get_sandbox(job.spec):
        children += build_sandbox_pool(job, job.spec, sandbox, head="sum-head-abcde", head_uid=o.CLUSTER_UID)
    for child in children:
        if names.HASH_ANNOTATION in child["metadata"].get("annotations", {}):
            child["metadata"]["annotations"][names.HASH_ANNOTATION] = "(hash)"
    named: list[Manifest] = json.loads(json.dumps(children).replace(name_programs(), "rlt-programs-DIGEST"))
    return named


@pytest.mark.parametrize("name", JOBS)
def test_every_golden_job_is_valid(name: str) -> None:
    assert JOBS[name].findings == ()


@pytest.mark.parametrize("name", JOBS)
def test_children_equal_the_golden_file(name: str) -> None:
    text = yaml.dump_all(children(JOBS[name]), Dumper=Readable, sort_keys=False, width=120)
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert golden.exists(), "run with UPDATE_GOLDEN=1"
    assert text == golden.read_text()


def test_every_golden_file_has_a_job() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(JOBS)


def test_the_run_directory_contains_name_and_uid() -> None:
    job = JOBS["gpu"]
    assert job.spec
    assert build_training_config(job.spec, build_run(job, job.spec)).run_directory == "/mnt/runs/runs/sum-11111111"


@pytest.mark.parametrize(("preset", "reward"), [("arithmetic", "exact"), ("gsm8k", "gsm8k")])
def test_the_default_reward_follows_the_preset(preset: str, reward: str) -> None:
    job = o.job({**o.SPEC, "data": {"preset": preset, "path": "/d"}})
    assert job.spec
    assert [rule.name for rule in build_training_config(job.spec, build_run(job, job.spec)).rewards] == [reward]


def test_shared_memory_defaults_to_a_quarter() -> None:
    job = o.job()
    assert job.spec
    assert job.spec.cluster.workers[0].resources
    assert size_shared_memory(job.spec.cluster.workers[0].resources).size == 2**30


@pytest.mark.parametrize("name", JOBS)
def test_the_volume_has_the_programs_and_every_file_of_the_config_map(name: str) -> None:
    job = JOBS[name]
    assert job.spec
    *config, programs = build_config_volume(job, job.spec)["sources"]
    items = [item["key"] for source in config for item in source["configMap"]["items"]]
    assert sorted(items) == sorted(build_config_map(job, job.spec)["data"])
    assert programs["configMap"]["name"] == name_programs()


@pytest.mark.parametrize("queue", [None, "team-a"])
@pytest.mark.parametrize("maximum", [None, 4])
def test_a_job_in_a_queue_whose_number_of_pods_changes_is_elastic(queue: str | None, maximum: int | None) -> None:
    numbers = {"replicas": 2, "minReplicas": 1, "maxReplicas": maximum}
    groups = [{"name": name, "resources": {"cpu": "1", "memory": "4Gi"}} for name in ("train", "rollout")]
    job = o.job(
        {
            **o.SPEC,
            "rollout": {"mode": "separate", "workerGroup": "rollout"},
            "cluster": {**o.SPEC["cluster"], "workers": [groups[0], {**groups[1], **numbers}]},
            "scheduling": {"queueName": queue},
        }
    )
    assert job.spec
    annotations = build_ray_cluster(job, job.spec)["metadata"].get("annotations")
    assert annotations == ({"kueue.x-k8s.io/elastic-job": "true"} if queue and maximum else None)


def test_the_queue_label_of_the_job_overrides_the_queue_name() -> None:
    named = {**o.SPEC, "scheduling": {"queueName": "runtimes"}}
    for job, queue in ((o.job(named), "runtimes"), (o.job(named, labels={names.QUEUE_LABEL: "mine"}), "mine")):
        assert job.spec
        assert build_ray_cluster(job, job.spec)["metadata"]["labels"][names.QUEUE_LABEL] == queue


def test_the_ray_cluster_never_sets_suspend() -> None:
    for job in JOBS.values():
        assert job.spec
        assert "suspend" not in build_ray_cluster(job, job.spec)["spec"]


def test_every_user_template_has_a_dry_run() -> None:
    job = JOBS["maximal"]
    assert job.spec
    templates = {dry_run.field: dry_run.manifest["template"] for dry_run in build_template_dry_runs(job, job.spec)}
    spec = build_ray_cluster(job, job.spec)["spec"]
    assert templates == {
        "spec.cluster.head.podTemplate": spec["headGroupSpec"]["template"],
        "spec.cluster.workers[0].podTemplate": spec["workerGroupSpecs"][0]["template"],
    }


def test_templates_of_the_operator_have_no_dry_run() -> None:
    job = JOBS["gpu"]
    assert job.spec
    assert build_template_dry_runs(job, job.spec) == ()


def test_user_labels_cannot_override_the_job_label() -> None:
    head = {"podTemplate": {"metadata": {"labels": {names.JOB_LABEL: "other"}, "annotations": None}}}
    job = o.job({**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": head}})
    assert job.spec
    metadata = build_ray_cluster(job, job.spec)["spec"]["headGroupSpec"]["template"]["metadata"]
    assert metadata == {"labels": names.labels("sum")}


def test_no_pod_has_privileges() -> None:
    for job in JOBS.values():
        assert job.spec
        spec = build_ray_cluster(job, job.spec)["spec"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            pod = group["template"]["spec"]
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["containers"][0]["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
