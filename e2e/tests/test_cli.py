"""`rlt` as a user meets it, on the whole cluster: a short job with a runtime from its file to its numbers.

- the operator's webhook refuses a wrong job in the words of `rlt validate`;
- a job is handed in, watched, looked at and deleted without another tool.
"""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from cluster import Cluster
from environment import ROOT, VENV
from jobs import await_job, load_example

pytestmark = pytest.mark.cluster

JOB = ROOT / "examples/03-with-a-runtime.yaml"
RUNTIME = ROOT / "examples/runtimes/cpu.yaml"


def rlt(cluster: Cluster, *arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `rlt`, and see its exit code."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([VENV / "bin/rlt", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == expected, (arguments, done.stdout, done.stderr)
    return done


def objects(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_wrong_job_is_refused_by_the_webhook_as_by_rlt_validate(cluster: Cluster, namespace: str) -> None:
    cluster.apply(load_example("runtimes/cpu.yaml"))
    job = load_example("03-with-a-runtime.yaml")
    job["spec"]["training"]["trainBatchSize"] = 7  # two workers cannot share it
    manifest = json.dumps(job)
    offline = subprocess.run(
        [VENV / "bin/rlt", "validate", "-", "--runtime", RUNTIME, "-o", "json"],
        input=manifest,
        capture_output=True,
        text=True,
    )
    (finding,) = json.loads(offline.stdout)
    with pytest.raises(ValueError, match="is invalid") as refused:
        cluster.kubectl("-n", namespace, "apply", "-f", "-", input=manifest)
    assert f"{finding['field']}: {finding['value']}: {finding['message']}; {finding['fix']}" in str(refused.value)


def test_a_job_from_its_file_to_its_numbers(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    there = ("--namespace", namespace)
    cluster.apply(load_example("runtimes/cpu.yaml"))
    job = load_example("03-with-a-runtime.yaml")
    job["spec"]["training"]["totalSteps"] = 400  # enough to be looked at while it runs
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    rlt(cluster, "submit", tmp_path / "job.yaml", *there)
    rlt(cluster, "wait", "short", "--for", "Running", "--timeout", "10m", *there)
    assert f"{namespace}/short  Running" in rlt(cluster, "status", "short", *there).stdout
    assert "short" in rlt(cluster, "get", *there).stdout
    await_job(
        cluster,
        namespace,
        "short",
        lambda job: job["status"].get("progress", {}).get("step", 0) >= 3,
        what="step 3",
        timeout_s=600,
    )
    history = rlt(cluster, "metrics", "short", "critic/rewards/mean", "-o", "json", *there).stdout
    assert [line["step"] for line in json.loads(history)] == list(range(1, len(json.loads(history)) + 1))
    (worst,) = json.loads(rlt(cluster, "rollouts", "short", "--worst", "1", "-o", "json", *there).stdout)
    assert worst["prompt"].endswith("=")
    assert "step:1 - " in rlt(cluster, "logs", "short", *there).stdout
    (said,) = objects(rlt(cluster, "logs", "short", "--tail", "1", "-o", "json", *there).stdout)
    assert said.keys() == {"source", "line"}
    pods = json.loads(rlt(cluster, "status", "short", "-o", "json", *there).stdout)["pods"]
    worker = pods[-1]["metadata"]["name"]
    last = objects(rlt(cluster, "logs", "short", "--pod", worker, "--tail", "2", "-o", "json", *there).stdout)
    whole = rlt(cluster, "logs", "short", "--pod", worker, *there).stdout.splitlines()
    assert [each["pod"] for each in last] == [worker, worker]
    assert all(datetime.fromisoformat(each["time"]) and each["line"] in whole for each in last)
    missing = rlt(cluster, "logs", "short", "--pod", "no-such", *there, expected=1).stderr
    assert f"short has no pod no-such. Its pods: {pods[0]['metadata']['name']}, " in missing
    rlt(cluster, "suspend", "short", *there)
    rlt(cluster, "wait", "short", "--for", "Suspended", "--timeout", "5m", *there)
    rlt(cluster, "delete", "short", "--yes", *there)
    assert json.loads(rlt(cluster, "get", "-o", "json", *there).stdout) == []
