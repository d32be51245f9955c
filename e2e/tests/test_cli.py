"""`rlt` on a cluster, with a short job and its runtime.

- the webhook rejects an invalid job with the message of `rlt validate`;
- a job is submitted, watched, inspected, opened in the dashboard and deleted only with `rlt`;
- the page of the cluster shows it;
- the job keeps the runtime that it started with.
"""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from cluster import Cluster
from environment import ROOT, VENV
from installation import RELEASE, SYSTEM_NAMESPACE
from jobs import await_cleanup, await_job, get_step, load_example, read_job, read_metrics, run_rlt

pytestmark = pytest.mark.cluster

JOB = ROOT / "examples/03-with-a-runtime.yaml"
RUNTIME = ROOT / "examples/runtimes/cpu.yaml"
STEPS = 90
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
    nodes = run_rlt(cluster, "exec", "short", "--namespace", namespace, "--", "ray", "status").stdout
    assert {" 2 workers", " 1 headgroup"} <= set(nodes.splitlines())  # in any order
    assert_dashboard(cluster, namespace)
    assert_page(cluster, namespace)
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
    usage = json.loads(rlt("top", "short", "-o", "json").stdout)
    assert [(each["pod"], each["reason"]) for each in usage] == [(each["metadata"]["name"], None) for each in pods]
    assert all(each["sharedMemoryLimit"] > 0 and each["gpus"] == [] for each in usage)
    missing = rlt("logs", "short", "--pod", "no-such", expected=1).stderr
    assert f"short has no pod no-such. Its pods: {pods[0]['metadata']['name']}, " in missing

    rlt("wait", "short", "--for", "Succeeded", "--timeout", "10m")
    done = read_job(cluster, namespace, "short")
    assert done["status"]["resolvedSpec"]["cluster"]["image"] == runtime["spec"]["images"]["cpu"]
    assert len(read_metrics(cluster, namespace, done)) == STEPS
    cluster.kubectl("-n", namespace, "wait", "--for=delete", "raycluster/short", "--timeout=300s")
    report = tmp_path / "report.html"
    assert "note: " not in rlt("report", "short", "--file", report).stderr  # from the volume
    assert f"step {STEPS} of {STEPS}" in report.read_text()
    rlt("delete", "short", "--yes")
    assert json.loads(rlt("get", "-o", "json").stdout) == []
    await_cleanup(cluster, namespace, "short")


def assert_dashboard(cluster: Cluster, namespace: str) -> None:
    """`rlt dashboard` shows the page and the jobs of Ray, and forwards nothing else."""
    command = [VENV / "bin/rlt", "dashboard", "short", "--port", "0", "--namespace", namespace]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            line = server.stdout.readline()
            url = line.removeprefix("Ray dashboard of job short: ").partition(" ")[0]
            assert "<html" in fetch(url)
            assert [each["status"] for each in json.loads(fetch(f"{url}/api/jobs/"))] == ["RUNNING"]
            for request, code in (
                (Request(url, headers={"Host": "attacker.example"}), 403),
                (Request(f"{url}/api/jobs/", data=b"{}"), 405),
            ):
                with pytest.raises(HTTPError) as rejected:
                    fetch(request)
                assert rejected.value.code == code
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 130


def assert_page(cluster: Cluster, namespace: str) -> None:
    """The page of the cluster shows the job to a visitor with the rights in docs/ui.md, and nothing without a token."""
    resources = "rltrainingjobs.rlt.dev,pods,events,secrets,services/proxy"
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "visitor")
    cluster.kubectl("-n", namespace, "create", "role", "visitor", "--verb=get,list", f"--resource={resources}")
    account = f"--serviceaccount={namespace}:visitor"
    cluster.kubectl("-n", namespace, "create", "rolebinding", "visitor", "--role=visitor", account)
    token = cluster.kubectl("-n", namespace, "create", "token", "visitor").strip()
    command = ["kubectl", "-n", SYSTEM_NAMESPACE, "port-forward", f"service/{RELEASE}-ui", "0:80"]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as tunnel:
        assert tunnel.stdout
        try:
            address = tunnel.stdout.readline().removeprefix("Forwarding from ").partition(" ")[0]

            def read(path: str, **headers: str) -> Any:
                return json.loads(fetch(Request(f"http://{address}/api/{path}", headers=headers)))

            with pytest.raises(HTTPError) as rejected:
                read("runs")
            assert rejected.value.code == 401
            bearer, job = {"Authorization": f"Bearer {token}"}, f"{namespace}/short"
            assert [run["id"] for run in read("runs", **bearer)["runs"]] == [job]
            run = read(f"run?run={job}", **bearer)
            assert run["notes"] == []
            assert len(run["pods"]) == 3
            assert read(f"metrics?run={job}", **bearer)["steps"][:3] == [1, 2, 3]
        finally:
            tunnel.terminate()


def fetch(request: str | Request) -> str:
    with urlopen(request, timeout=60) as response:
        return str(response.read().decode())


def json_lines(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]
