"""The arithmetic example without a shared volume: it learns, is evaluated, promoted, published and served, and its bill
adds up.

The accelerators are a resource of the nodes without devices. The trainer computes on CPUs, and reports as on GPUs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from loopback_hub import loopback_hub

from rlt_e2e import usage
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.s3_server import s3_server
from rlt_e2e.jobs import START_TIMEOUT_S, Job, apply_job, await_job, get_condition, is_true, load_example, run_rlt

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAME = "chain"
WORKERS = 2
"""One on each node."""
TIMEOUT_S = 3 * START_TIMEOUT_S


@pytest.fixture
def devices(cluster: Cluster) -> Iterator[None]:
    """The accelerators of `usage.reserve`, until the end."""
    if not cluster.layout:
        pytest.skip("the servers need the embedded cluster")
    yield
    for node in cluster.nodes():
        cluster.set_extended_resource(node, usage.GPU, 0)


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
    cluster["workers"][0]["replicas"] = WORKERS
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
        held = usage.Held()
        earlier = read_bill(cluster, namespace)  # of a deleted job, when the test ran before
        job = build_job(variables["AWS_ENDPOINT_URL_S3"], hub.endpoint)
        usage.reserve(cluster, namespace, job)
        apply_job(cluster, namespace, job)

        def is_released(job: Job) -> bool:
            held.observe(cluster, namespace, NAME, time.time())
            assert not is_true(job, "Failed"), job["status"]
            return is_true(job, "Succeeded") and usage.is_released(job) and len(held.ended) == WORKERS

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
        weights = (run / "export/1/model.safetensors").read_bytes()
        assert repository.files["model.safetensors"] == weights
        assert (objects / "models/sums/model.safetensors").read_bytes() == weights
        assert (objects / "models/sums/rlt-published.json").exists()

        rendered = run_rlt(cluster, "serve", NAME, "--render", "-n", namespace).stdout
        deployment = next(each for each in yaml.safe_load_all(rendered) if each["kind"] == "Deployment")
        (server,) = deployment["spec"]["template"]["spec"]["containers"]
        assert f"lab/sums --served-model-name {NAME}" in " ".join(server["command"])
        assert f"--revision {revision}" in " ".join(server["command"])

    assert abs(usage.compute_error(job, held)) <= usage.MAX_ERROR
    found = job["status"]["usage"]
    assert all(found["by"][part] > 0 for part in ("starting", "generate", "update", "sync", "evaluate", "idle"))
    assert found["by"].get("lost", 0) == 0
    assert read_bill(cluster, namespace) - earlier == found["acceleratorSeconds"]


def read_bill(cluster: Cluster, namespace: str) -> int:
    """Return the accelerator seconds of the namespace."""
    bills = json.loads(run_rlt(cluster, "usage", "-n", namespace, "-o", "json").stdout)
    return sum(bill["acceleratorSeconds"] for bill in bills)
