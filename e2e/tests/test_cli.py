"""`rlt` on a cluster, with a job on two nodes that learns, and its runtime.

- the webhook rejects an invalid job with the message of `rlt validate`;
- a job is submitted, watched, inspected, opened in the dashboard and deleted only with `rlt`;
- the page of the cluster shows it;
- the job keeps the runtime that it started with;
- it learns while both operators, of rlt and of KubeRay, are killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_e2e.chaos.faults import kill_kuberay, kill_operator
from rlt_e2e.chaos.pods import Target
from rlt_e2e.cluster import Cluster
from rlt_e2e.environment import ROOT, VENV
from rlt_e2e.installation import CLAIM, RELEASE, SYSTEM_NAMESPACE
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    Job,
    await_cleanup,
    await_job,
    get_step,
    list_pods,
    load_example,
    read_job,
    read_metrics,
    run_rlt,
)

pytestmark = pytest.mark.cluster

JOB = ROOT / "examples/03-with-a-runtime.yaml"
RUNTIME = ROOT / "examples/runtimes/cpu.yaml"
NAME = "short"
STEPS = 80
"""Enough to inspect the job while it runs."""
RESPONSES_PER_PROMPT = 4
"""Half of example 01's, for cheaper steps. The reward still doubles."""


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


def test_a_job_learns_from_submission_to_deletion_while_the_operators_are_killed(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runtime = load_example("runtimes/cpu.yaml")
    cluster.apply(runtime)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(build_job()))

    def rlt(*arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
        return run_rlt(cluster, *arguments, "--namespace", namespace, expected=expected)

    rlt("submit", tmp_path / "job.yaml")
    rlt("wait", NAME, "--for", "Running", "--timeout", "10m")
    cluster.kubectl("delete", "rlruntime", runtime["metadata"]["name"])
    assert f"{namespace}/{NAME}  Running" in rlt("status", NAME).stdout
    assert NAME in rlt("get").stdout
    await_job(cluster, namespace, NAME, lambda job: get_step(job) >= 5, what="step 5", timeout_s=START_TIMEOUT_S)
    nodes = run_rlt(cluster, "exec", NAME, "--namespace", namespace, "--", "ray", "status").stdout
    assert {" 2 workers", " 1 headgroup"} <= set(nodes.splitlines())  # in any order
    assert_dashboard(cluster, namespace)
    assert_page(cluster, namespace)
    assert_records(rlt)
    kill_operators(cluster, namespace)

    rlt("wait", NAME, "--for", "Succeeded", "--timeout", "20m")
    done = read_job(cluster, namespace, NAME)
    assert get_resolved_spec(done)["cluster"]["image"] == runtime["spec"]["images"]["cpu"]
    assert_learned(done, read_metrics(cluster, namespace, done))
    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{NAME}", "--timeout=300s")
    kept = json.loads(rlt("metrics", NAME, "critic/rewards/mean", "-o", "json").stdout)  # without the cluster
    assert [line["step"] for line in kept] == list(range(1, STEPS + 1))
    assert len(json.loads(rlt("rollouts", NAME, "--best", "1", "-o", "json").stdout)) == 1
    report = tmp_path / "report.html"
    assert "note: " not in rlt("report", NAME, "--file", report).stderr  # from the volume
    assert f'"step": {STEPS}, "totalSteps": {STEPS}' in report.read_text()
    rlt("delete", NAME, "--yes")
    assert json.loads(rlt("get", "-o", "json").stdout) == []
    await_cleanup(cluster, namespace, NAME)


def build_job() -> Job:
    """Build example 03, of 12 lines, with the training of example 01, which learns."""
    assert len([line for line in JOB.read_text().splitlines() if not line.startswith("#")]) <= 12
    job = load_example(JOB.name)
    learning = load_example("01-arithmetic-grpo.yaml")["spec"]
    blocks = ("model", "data", "rewards", "algorithm", "training", "rollout", "checkpoint")
    job["spec"] |= {name: learning[name] for name in blocks}
    job["spec"]["training"]["totalSteps"] = STEPS
    job["spec"]["rollout"]["responsesPerPrompt"] = RESPONSES_PER_PROMPT
    return job


def assert_records(rlt: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Metrics, rollouts, logs and usage of the running job."""
    history = json.loads(rlt("metrics", NAME, "critic/rewards/mean", "-o", "json").stdout)
    assert [line["step"] for line in history] == list(range(1, len(history) + 1))
    (worst,) = json.loads(rlt("rollouts", NAME, "--worst", "1", "-o", "json").stdout)
    assert worst["prompt"].endswith("=")
    assert "step:1 - " in rlt("logs", NAME).stdout
    (last_line,) = json_lines(rlt("logs", NAME, "--tail", "1", "-o", "json").stdout)
    assert last_line.keys() == {"source", "line"}
    pods = json.loads(rlt("status", NAME, "-o", "json").stdout)["pods"]
    worker = pods[-1]["metadata"]["name"]
    last = json_lines(rlt("logs", NAME, "--pod", worker, "--tail", "2", "-o", "json").stdout)
    log = rlt("logs", NAME, "--pod", worker).stdout.splitlines()
    assert [each["pod"] for each in last] == [worker, worker]
    assert all(datetime.fromisoformat(each["time"]) and each["line"] in log for each in last)
    usage = json.loads(rlt("top", NAME, "-o", "json").stdout)
    assert [(each["pod"], each["reason"]) for each in usage] == [(each["metadata"]["name"], None) for each in pods]
    assert all(each["sharedMemoryLimit"] > 0 and each["gpus"] == [] for each in usage)
    missing = rlt("logs", NAME, "--pod", "no-such", expected=1).stderr
    assert f"{NAME} has no pod no-such. Its pods: {pods[0]['metadata']['name']}, " in missing


def kill_operators(cluster: Cluster, namespace: str) -> None:
    """Kill the operators of rlt and KubeRay: the job continues in the same pods."""
    job = read_job(cluster, namespace, NAME)
    pods = list_pods(cluster, namespace, NAME)
    workers = [node for pod, (_, node) in pods.items() if "-head-" not in pod]
    assert len(set(workers)) == len(workers) == 2, "each worker is on its own node"
    if cluster.layout:
        target = Target(cluster, namespace, NAME, cluster.shared_volume(namespace, CLAIM))
        kill_kuberay(target)
        kill_operator(target, kills=2, within_s=10.0)
    else:
        cluster.kubectl("-n", SYSTEM_NAMESPACE, "delete", "pod", "-l", f"app.kubernetes.io/name={RELEASE}", "--now")
    killed_at = get_step(read_job(cluster, namespace, NAME))
    later = await_job(
        cluster, namespace, NAME, lambda job: get_step(job) > killed_at + 5, what="new steps", timeout_s=EVENT_TIMEOUT_S
    )
    assert later["status"]["rayCluster"]["jobId"] == job["status"]["rayCluster"]["jobId"]
    assert list_pods(cluster, namespace, NAME) == pods, "no pod was replaced"


def assert_learned(job: Job, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Each step is in the metrics once, the reward has increased, and the status has the last one."""
    rewards = [line["critic/rewards/mean"] for line in metrics]
    assert [line["training/global_step"] for line in metrics] == list(range(1, STEPS + 1))
    # The curve is the same in every run on one kind of processor. Others round differently.
    assert mean(rewards[-20:]) >= 1.4 * mean(rewards[:10]), rewards
    progress = job["status"]["progress"]
    assert (progress["step"], progress["totalSteps"], progress["display"]) == (STEPS, STEPS, "100%")
    assert progress["metrics"]["reward"] == pytest.approx(rewards[-1], rel=1e-3)


def assert_dashboard(cluster: Cluster, namespace: str) -> None:
    """`rlt dashboard` shows the page and the jobs of Ray, and forwards nothing else."""
    command: list[str | Path] = [VENV / "bin/rlt", "dashboard", NAME, "--port", "0", "--namespace", namespace]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            line = server.stdout.readline()
            url = line.removeprefix(f"Ray dashboard of job {NAME}: ").partition(" ")[0]
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
            bearer = {"Authorization": f"Bearer {token}"}
            job = f"{namespace}/{NAME}"
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
