"""The arithmetic example without a shared volume: it learns, is evaluated, promoted, published and served, and its bill
adds up.

The accelerators are a resource of the nodes without devices. The trainer computes on CPUs, and reports as on GPUs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback_hub import loopback_hub

from rlt_e2e.api_objects import read_objects
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.s3_server import s3_server
from rlt_e2e.jobs import START_TIMEOUT_S, Job, apply_job, await_job, get_condition, is_true, load_example, run_rlt

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAME = "chain"
GPU = "nvidia.com/gpu"
WORKERS = 2
"""One on each node."""
TIMEOUT_S = 3 * START_TIMEOUT_S
WITHOUT_DEVICES = """
import sys

if any(word.endswith("/rlt-trainer") for word in sys.orig_argv) and "run" in sys.orig_argv:
    import rlt_trainer.cluster.pods as pods
    from rlt_api.spec.training_config import TrainingConfig

    count, read = pods.list_accelerators, TrainingConfig.model_validate_json
    pods.list_accelerators = lambda config: count(config.model_copy(update={"devices_per_worker": 1}))
    TrainingConfig.model_validate_json = lambda text: read(text).model_copy(update={"devices_per_worker": 0})
"""
"""sitecustomize.py of the head."""

Lives = dict[str, tuple[float, float]]
"""Name of a pod -> Unix times: when it got its node, and when it was seen last."""


@pytest.fixture
def devices(cluster: Cluster) -> Iterator[None]:
    """An accelerator of each node."""
    if not cluster.layout:
        pytest.skip("the servers need the embedded cluster")
    nodes = cluster.nodes()
    for node in nodes:
        cluster.set_extended_resource(node, GPU, 1)
    yield
    for node in nodes:
        cluster.set_extended_resource(node, GPU, 0)


def build_job(s3: str, hub: str) -> Job:
    """Build example 01 in a bucket, with a gate and two places."""
    job = load_example("01-arithmetic-grpo.yaml")
    spec = job["spec"]
    job["metadata"]["name"] = NAME
    spec["rollout"]["engine"] = "transformers"  # deterministic
    spec["storage"] = {"bucket": "s3://runs", "endpoint": s3, "secretName": "s3"}
    spec["evaluation"] = [{"name": "sums", "beforeTrain": True, "every": 50, "promoteIf": {"gainAbove": 0}}]
    spec["publish"] = [
        {"hub": "lab/sums", "secretName": "hub"},
        {"bucket": "s3://models/sums", "endpoint": s3, "secretName": "s3"},
    ]
    spec["preflight"] = {"level": "none"}
    cluster = spec["cluster"]
    cluster["env"] = [{"name": "HF_ENDPOINT", "value": hub}, {"name": "HF_HUB_DISABLE_XET", "value": "1"}]
    cluster["workers"][0] |= {"replicas": WORKERS, "accelerator": {"resourceName": GPU, "count": 1}}
    head = {
        "name": "ray-head",
        "env": [{"name": "PYTHONPATH", "value": "/etc/devices"}],
        "volumeMounts": [{"name": "devices", "mountPath": "/etc/devices"}],
    }
    volume = {"name": "devices", "configMap": {"name": "devices"}}
    cluster["head"]["podTemplate"] = {"spec": {"containers": [head], "volumes": [volume]}}
    return job


def test_a_run_without_a_volume_is_promoted_published_served_and_billed(
    cluster: Cluster, namespace: str, devices: None, tmp_path: Path
) -> None:
    assert cluster.layout
    machine = cluster.layout.machine
    with s3_server(tmp_path, machine) as variables, loopback_hub(machine) as hub:
        objects = tmp_path / "objects"
        for bucket in ("runs", "models"):
            (objects / bucket).mkdir()
        keys = {name: variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        for name, values in {"s3": keys, "hub": {"HF_TOKEN": "write"}}.items():
            metadata = {"name": name, "namespace": namespace}
            cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values})
        metadata = {"name": "devices", "namespace": namespace}
        files = {"sitecustomize.py": WITHOUT_DEVICES}
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files})
        lives: Lives = {}
        earlier = read_bill(cluster, namespace)  # of a deleted job, when the test ran before
        apply_job(cluster, namespace, build_job(variables["AWS_ENDPOINT_URL_S3"], hub.endpoint))

        def is_released(job: Job) -> bool:
            follow_workers(cluster, namespace, lives)
            assert not is_true(job, "Failed"), job["status"]
            return is_true(job, "Succeeded") and job["status"]["usage"].get("accelerators", 0) == 0

        job = await_job(cluster, namespace, NAME, is_released, what="the release", timeout_s=TIMEOUT_S)

        run = objects / f"runs/runs/{NAME}-{job['metadata']['uid'][:8]}"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        scores = [line["critic/score/mean"] for line in lines if line["step"] > 0]
        assert sum(scores[-10:]) > sum(scores[:10]) + 1, "the mean score is higher by more than 0.1"

        assert get_condition(job, "Promoted")["reason"] == "GatesPassed"
        assert get_condition(job, "Published")["reason"] == "ModelPublished"
        repository = hub.repositories["lab/sums"]
        (_, revision) = repository.commits
        assert job["status"]["published"][0]["revision"] == revision
        weights = (run / "export/model.safetensors").read_bytes()
        assert repository.files["model.safetensors"] == weights
        assert (objects / "models/sums/model.safetensors").read_bytes() == weights
        assert (objects / "models/sums/rlt-published.json").exists()

        rendered = run_rlt(cluster, "serve", NAME, "--render", "-n", namespace).stdout
        deployment = next(each for each in yaml.safe_load_all(rendered) if each["kind"] == "Deployment")
        (server,) = deployment["spec"]["template"]["spec"]["containers"]
        assert f"lab/sums --served-model-name {NAME}" in " ".join(server["command"])
        assert f"--revision {revision}" in " ".join(server["command"])

    usage = job["status"]["usage"]
    held = sum(end - start for start, end in lives.values())
    assert len(lives) == WORKERS
    assert sum(usage["by"].values()) == usage["acceleratorSeconds"] == pytest.approx(held, rel=0.01)
    assert all(usage["by"][part] > 0 for part in ("starting", "generate", "update", "sync", "evaluate", "idle"))
    assert usage["by"].get("lost", 0) == 0
    assert read_bill(cluster, namespace) - earlier == usage["acceleratorSeconds"]


def read_bill(cluster: Cluster, namespace: str) -> int:
    """Return the accelerator seconds of the namespace."""
    bills = json.loads(run_rlt(cluster, "usage", "-n", namespace, "-o", "json").stdout)
    return sum(bill["acceleratorSeconds"] for bill in bills)


def follow_workers(cluster: Cluster, namespace: str, lives: Lives) -> None:
    """Extend the lives of the worker pods that have a node."""
    selector = f"ray.io/cluster={NAME},ray.io/node-type=worker"
    for pod in read_objects(cluster, namespace, "pod", labelSelector=selector):
        status: dict[str, Any] = pod["status"]
        bound = [each for each in status.get("conditions", []) if each["type"] == "PodScheduled"]
        if bound and bound[0]["status"] == "True" and status["phase"] not in ("Succeeded", "Failed"):
            start = datetime.fromisoformat(bound[0]["lastTransitionTime"]).timestamp()
            lives[pod["metadata"]["name"]] = (start, time.time())
