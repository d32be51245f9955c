"""`rlt` on a cluster, with a short job and its runtime.

- the webhook rejects an invalid job with the message of `rlt validate`;
- a job is submitted, watched, inspected and deleted only with `rlt`;
- the job keeps the runtime that it started with.
"""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from cluster import Cluster
from environment import ROOT, VENV
from jobs import await_cleanup, await_job, get_step, load_example, read_job, read_metrics, run_rlt

pytestmark = pytest.mark.cluster

JOB = ROOT / "examples/03-with-a-runtime.yaml"
RUNTIME = ROOT / "examples/runtimes/cpu.yaml"
STEPS = 60
"""Enough to inspect the job while it runs."""


def test_the_webhook_rejects_an_invalid_job_like_rlt_validate(cluster: Cluster, namespace: str) -> None:
    cluster.apply(load_example("runtimes/cpu.yaml"))
    job = load_example("03-with-a-runtime.yaml")
    job["spec"]["training"]["trainBatchSize"] = 7  # not divisible by two workers
    manifest = json.dumps(job)
    offline = subprocess.run(
        [VENV / "bin/rlt", "validate", "-", "--runtime", RUNTIME, "-o", "json"],
        input=manifest,
        capture_output=True,
        text=True,
    )
    (finding,) = json.loads(offline.stdout)
    with pytest.raises(ValueError, match="is invalid") as rejected:
        cluster.kubectl("-n", namespace, "apply", "-f", "-", input=manifest)
    assert f"{finding['field']}: {finding['value']}: {finding['message']}; {finding['fix']}" in str(rejected.value)


def test_a_job_from_submission_to_deletion(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    assert len([line for line in JOB.read_text().splitlines() if not line.startswith("#")]) <= 12
    runtime, job = load_example("runtimes/cpu.yaml"), load_example("03-with-a-runtime.yaml")
    cluster.apply(runtime)
    job["spec"]["training"]["totalSteps"] = STEPS
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    def rlt(*arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
        return run_rlt(cluster, *arguments, "--namespace", namespace, expected=expected)

    rlt("submit", tmp_path / "job.yaml")
    rlt("wait", "short", "--for", "Running", "--timeout", "10m")
    cluster.kubectl("delete", "rlruntime", runtime["metadata"]["name"])
    assert f"{namespace}/short  Running" in rlt("status", "short").stdout
    assert "short" in rlt("get").stdout
    await_job(cluster, namespace, "short", lambda job: get_step(job) >= 3, what="step 3", timeout_s=600)
    history = json.loads(rlt("metrics", "short", "critic/rewards/mean", "-o", "json").stdout)
    assert [line["step"] for line in history] == list(range(1, len(history) + 1))
    (worst,) = json.loads(rlt("rollouts", "short", "--worst", "1", "-o", "json").stdout)
    assert worst["prompt"].endswith("=")
    assert "step:1 - " in rlt("logs", "short").stdout
    (last_line,) = json_lines(rlt("logs", "short", "--tail", "1", "-o", "json").stdout)
    assert last_line.keys() == {"source", "line"}
    pods = json.loads(rlt("status", "short", "-o", "json").stdout)["pods"]
    worker = pods[-1]["metadata"]["name"]
    last = json_lines(rlt("logs", "short", "--pod", worker, "--tail", "2", "-o", "json").stdout)
    log = rlt("logs", "short", "--pod", worker).stdout.splitlines()
    assert [each["pod"] for each in last] == [worker, worker]
    assert all(datetime.fromisoformat(each["time"]) and each["line"] in log for each in last)
    missing = rlt("logs", "short", "--pod", "no-such", expected=1).stderr
    assert f"short has no pod no-such. Its pods: {pods[0]['metadata']['name']}, " in missing

    rlt("wait", "short", "--for", "Succeeded", "--timeout", "10m")
    done = read_job(cluster, namespace, "short")
    assert done["status"]["resolvedSpec"]["cluster"]["image"] == runtime["spec"]["images"]["cpu"]
    assert len(read_metrics(cluster, namespace, done)) == STEPS
    cluster.kubectl("-n", namespace, "wait", "--for=delete", "raycluster/short", "--timeout=120s")
    rlt("delete", "short", "--yes")
    assert json.loads(rlt("get", "-o", "json").stdout) == []
    await_cleanup(cluster, namespace, "short")


def json_lines(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]
