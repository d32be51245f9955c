"""examples/34-bucket.yaml: two workers without a shared volume save to a bucket, and resume from it on other pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.s3_server import s3_server
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    apply_job,
    await_condition,
    await_job,
    get_step,
    load_example,
    read_job,
    run_rlt,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_a_suspended_job_without_a_volume_resumes_from_its_bucket(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The preflight checks the bucket first. The metrics in the bucket have each step once."""
    if not cluster.layout:
        pytest.skip("the server needs the embedded cluster")
    with s3_server(tmp_path, cluster.layout.machine) as variables:
        (tmp_path / "objects/runs").mkdir()
        keys = {name: variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        metadata = {"name": "s3", "namespace": namespace}
        cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys})
        job = load_example("34-bucket.yaml")
        job["spec"]["storage"]["endpoint"] = variables["AWS_ENDPOINT_URL_S3"]
        job["spec"]["preflight"] = {"level": "basic"}
        name = apply_job(cluster, namespace, job)
        started = await_job(
            cluster, namespace, name, lambda found: get_step(found) > 1, what="step 2", timeout_s=START_TIMEOUT_S
        )
        checks = {each["name"]: each["result"] for each in started["status"]["preflight"]}
        assert checks["bucket"] == "passed"

        run_rlt(cluster, "suspend", name, "-n", namespace)
        suspended = await_condition(cluster, namespace, name, "Suspended", timeout_s=EVENT_TIMEOUT_S)
        cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=300s")
        run = f"runs/team-a/runs/{name}-{suspended['metadata']['uid'][:8]}"
        saved = read_job(cluster, namespace, name)["status"]["checkpoint"]
        assert saved["path"] == f"s3://{run}/checkpoints"
        assert saved["latestStep"] >= get_step(started)

        run_rlt(cluster, "resume", name, "-n", namespace)
        done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
        assert done["status"]["checkpoint"]["exportedPath"] == f"s3://{run}/export/2"
        objects = tmp_path / "objects" / run
        lines = (objects / "metrics.jsonl").read_text().splitlines()
        steps = job["spec"]["training"]["totalSteps"]
        assert [json.loads(line)["step"] for line in lines] == [*range(1, steps + 1)], "it resumed after its last step"
        assert (objects / f"checkpoints/step-{steps}/complete").exists()
        assert (objects / "export/2/model.safetensors").exists()
        assert sorted(path.name for path in (objects / "executions").iterdir()) == ["1", "2"]
