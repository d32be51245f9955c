"""`rlt` as a user meets it, on the whole cluster: a short job with a runtime from its file to its numbers.

- the operator's webhook refuses a wrong job in the words of `rlt validate`;
- a job is handed in, watched, looked at and deleted without another tool.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from cluster import Cluster
from environment import ROOT, VENV
from jobs import load_example

pytestmark = pytest.mark.cluster

JOB = ROOT / "examples/03-with-a-runtime.yaml"
RUNTIME = ROOT / "examples/runtimes/cpu.yaml"


def rlt(cluster: Cluster, *arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `rlt`, and see its exit code."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([VENV / "bin/rlt", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == expected, (arguments, done.stdout, done.stderr)
    return done


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
    with pytest.raises(ValueError, match="denied the request") as refused:
        cluster.kubectl("-n", namespace, "apply", "-f", "-", input=manifest)
    assert finding["field"] in str(refused.value)
    assert finding["message"] in str(refused.value)


def test_a_job_from_its_file_to_its_numbers(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    there = ("--namespace", namespace)
    cluster.apply(load_example("runtimes/cpu.yaml"))
    job = load_example("03-with-a-runtime.yaml")
    job["spec"]["training"]["totalSteps"] = 400  # enough to be looked at while it runs
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    rlt(cluster, "submit", tmp_path / "job.yaml", *there)
    rlt(cluster, "wait", "short", "--for", "Running", "--timeout", "10m", *there)
    page = rlt(cluster, "status", "short", *there).stdout
    assert "short" in page
    assert "Running" in page
    assert "short" in rlt(cluster, "get", *there).stdout
    assert "rlt-trainer" in rlt(cluster, "logs", "short", *there).stdout or page
    cluster.kubectl(
        "-n", namespace, "wait", "--for=jsonpath={.status.progress.stage}=training", "rltj/short", "--timeout=10m"
    )
    rlt(cluster, "suspend", "short", *there)
    rlt(cluster, "wait", "short", "--for", "Suspended", "--timeout", "5m", *there)
    rlt(cluster, "delete", "short", "--yes", *there)
    assert rlt(cluster, "get", *there, "-o", "json").stdout.strip() in ("[]", "") or "short" not in page
