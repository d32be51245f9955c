"""Ray jobs on a real Ray head: the operator submits, observes, stops and reports them through Ray's HTTP API.

The test creates pods and service; the service forwards to a head on this machine.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import observed as o
import pytest
from apiserver.command_line import Rlt
from apiserver.in_cluster import PODS, READY, Kubernetes, Operator
from apiserver.ray_head import RayHead
from apiserver.waiting import eventually
from gate import Gate

from rlt_core.ray_http import Head, RayTokens, to_pod_ip
from rlt_operator.observation import Ray
from rlt_operator.ray.jobs import observe_ray

pytestmark = pytest.mark.apiserver


def start(
    kubernetes: Kubernetes, namespace: str, ray: RayHead, script: str, *, node: str | None = None, **fields: Any
) -> None:
    """Start a job whose command is a Python script on a ready cluster. `fields`: additional fields of its spec."""
    spec = {
        **o.COMMAND_SPEC,
        "framework": {"type": "command", "command": [sys.executable, "-c", script]},
        **fields,
    }
    start_job(kubernetes, namespace, ray, spec, node=node)


def start_job(
    kubernetes: Kubernetes, namespace: str, ray: RayHead, spec: dict[str, Any], *, node: str | None = None
) -> None:
    """Start a job on a ready cluster."""
    ray.check_runs()
    kubernetes.create_job(namespace, spec)
    cluster = kubernetes.ray_cluster(namespace)
    ray.mount(kubernetes, cluster)
    kubernetes.make_service(namespace, ray)
    make_ready(kubernetes, namespace, ray, node=node)


def follow_logs(kubernetes: Kubernetes, namespace: str, *options: str) -> subprocess.Popen[str]:
    """Start `rlt logs --follow`. It would wait without end for a job that does not start, so it has a time limit."""
    command = ["timeout", "300", sys.executable, "-m", "rlt_cli.main", "logs", "sum", "--follow", *options]
    command += ["-n", namespace, "--kubeconfig", str(kubernetes.cluster.kubeconfig)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def make_ready(kubernetes: Kubernetes, namespace: str, ray: RayHead, *, node: str | None = None) -> None:
    """Create the pods of the RayCluster with status Ready."""
    at = {"podIP": ray.address, "podIPs": [{"ip": ray.address}]}
    kubernetes.play_kuberay(namespace, {pod: {**READY, **at} for pod in PODS}, node=node)


def test_a_job_succeeds_despite_a_crash_of_the_operator(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    last = o.final_log().splitlines()[-1]
    start(kubernetes, namespace, ray, f"{gate.wait}print({last!r})")
    kubernetes.wait(namespace, "Running")
    (job_id,) = (known for known in ray.jobs() if known == kubernetes.status(namespace)["rayCluster"]["jobId"])
    operator.kill()
    operator.start()
    gate.open()
    kubernetes.kubectl("wait", "--for=condition=Succeeded", "rltrainingjob/sum", "-n", namespace, "--timeout=300s")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    kubernetes.wait(namespace, "Reconciling", "False")
    status = kubernetes.status(namespace)
    assert status["progress"]["display"] == "100%"
    assert status["startTime"] <= status["completionTime"]
    assert [other for other in ray.jobs() if other.startswith("sum-") and other != job_id] == []
    eventually("both events", lambda: sorted(kubernetes.events(namespace)) == ["Running", "Succeeded"])


def test_a_running_job_that_changes_nothing_needs_no_request(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """Nor any write, while its head is polled. Until it runs, the operator reads each object at most twice."""
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    until_running = operator.requests()
    print(sorted(until_running.items()))
    assert sum(count for key, count in until_running.items() if key.startswith("GET")) <= 2 * len(until_running)
    polls = operator.polls()
    eventually("the status is written", lambda: operator.polls() >= polls + 1)
    before = operator.requests()
    eventually("three more polls", lambda: operator.polls() >= polls + 4)
    found = operator.requests() - before
    assert found.total() == found["GET rltrainingjobs"] <= 1, "a metadata list of all jobs may be due"
    gate.open()
    kubernetes.wait(namespace, "Succeeded")
    print(sorted((operator.requests() - before).items()))


def test_the_output_of_a_command_is_in_kubectl_get(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """A child process of the command prints the lines, as verl's driver prints the output of its actors."""
    steps = [f"step:{n} - critic/rewards/mean:{n / 8} - actor/kl_loss:0.0{n} - timing_s/step:30.0" for n in (1, 2)]
    printing = f"print('Total training steps: 8')\nfor line in {steps}: print(f'(TaskRunner pid=7) {{line}}')"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {printing!r}])\n"
    start(kubernetes, namespace, ray, script + gate.wait)
    eventually("step 2", lambda: (kubernetes.status(namespace).get("progress") or {}).get("step") == 2)
    progress = kubernetes.status(namespace)["progress"]
    assert (progress["totalSteps"], progress["display"], progress["eta"]) == (8, "25%", "3m0s")
    assert (progress["metrics"]["reward"], progress["metrics"]["kl"]) == (0.25, 0.02)
    (row,) = kubernetes.kubectl("get", "rltrainingjobs", "-n", namespace, "-o", "wide", "--no-headers").splitlines()
    assert {"Running", "2", "25%", "0.25", "3m0s", "0.02"} <= set(row.split())
    gate.open()
    kubernetes.wait(namespace, "Succeeded")
    assert kubernetes.condition(namespace, "Succeeded")[2] == "2 of 8 steps are done."


def test_the_metrics_of_a_run_outlive_its_cluster(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, rlt: Rlt, tmp_path: Path
) -> None:
    """Ray serves the record that the program writes beside its output, and the operator stores it."""
    steps = [f"step:{step} - critic/rewards/mean:{step / 4} - timing_s/step:1.0" for step in (1, 2)]
    storage = {"claimName": "runs", "mountPath": str(tmp_path)}
    start(kubernetes, namespace, ray, f"for line in {steps}: print(line, flush=True)", storage=storage)
    kubernetes.wait(namespace, "Succeeded")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    record = kubernetes.get(namespace, "configmap", "sum-record")
    job = kubernetes.get(namespace, "rltrainingjob", "sum")
    assert record
    assert job
    assert [owner["uid"] for owner in record["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    rows = json.loads(rlt("metrics", "sum", "critic/rewards/mean", "-o", "json").stdout)
    assert rows == [{"step": 1, "critic/rewards/mean": 0.25}, {"step": 2, "critic/rewards/mean": 0.5}]
    kubernetes.end_pods(namespace)
    eventually("the metrics on the page", lambda: "2 STEPS" in rlt("status", "sum").stdout)
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no record", lambda: kubernetes.get(namespace, "configmap", "sum-record") is None)


def test_a_broken_rule_is_a_finding_and_pauses_the_job(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate, rlt: Rlt, tmp_path: Path
) -> None:
    steps = [f"step:{step} - actor/kl_loss:5.0 - timing_s/step:1.0" for step in (1, 2)]
    script = f"for line in {steps}: print(line, flush=True)\n{gate.wait}"
    rules = {"klRunaway": {"threshold": 1, "steps": 2, "action": "pause"}}
    storage = {"claimName": "runs", "mountPath": str(tmp_path)}
    start(kubernetes, namespace, ray, script, storage=storage, observability={"metricRules": rules})
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    kubernetes.wait(namespace, "Suspended", "PausedByRule")
    status = kubernetes.status(namespace)
    (finding,) = status["findings"]
    assert (finding["code"], finding["severity"]) == ("KlRunaway", "warning")
    assert finding["evidence"].endswith("is above 1: 5 at step 1")
    assert (status["pause"]["rule"], status["pause"]["step"], status["phase"]) == ("klRunaway", 2, "Suspended")
    assert "KlRunaway" in rlt("status", "sum").stdout
    eventually("events", lambda: {"KlRunaway", "PausedByRule"} <= set(kubernetes.events(namespace)))
    assert kubernetes.events(namespace).count("KlRunaway") == 1
    rlt("resume", "sum")
    assert kubernetes.ray_cluster(namespace)
    eventually("no pause", lambda: "pause" not in kubernetes.status(namespace))


def test_logs_follow_prints_the_output_until_its_end(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """`rlt logs -f` through the API server prints lines from before its start to the last one."""
    start(kubernetes, namespace, ray, f"print('early', flush=True)\n{gate.wait}print('late')")
    with follow_logs(kubernetes, namespace) as following:
        assert following.stdout
        assert any(line == "early\n" for line in following.stdout)
        gate.open()
        assert [line for line in following.stdout if line == "late\n"] == ["late\n"]
        assert following.wait(timeout=30) == 0


def test_a_failed_command_is_reported_with_its_message(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead
) -> None:
    start(kubernetes, namespace, ray, "raise SystemExit('there is no reward called fame')")
    kubernetes.wait(namespace, "Failed")
    assert kubernetes.condition(namespace, "Failed")[1:] == ("ProgramFailed", "there is no reward called fame")
    answer = asyncio.run(ask(ray, kubernetes.status(namespace)["rayCluster"]["jobId"]))
    assert answer.log
    assert "there is no reward called fame" in answer.log
    assert [program in log for program, log in zip(("gcs_server", "raylet"), answer.ray_logs, strict=True)] == [
        True
    ] * 2
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)


async def ask(ray: RayHead, id: str) -> Ray:
    """What the operator reads of a Ray job."""
    async with aiohttp.ClientSession() as session:
        send = to_pod_ip(session, RayTokens())
        return await observe_ray(send, Head("demo", "head", ray.address), id)


def test_a_restart_excludes_the_faulty_node(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, tmp_path: Path
) -> None:
    """The operator crashes in between. The API server accepts the second pods, so their node affinity is valid."""
    error = f"(Rank pid=7, ip={ray.address}) RuntimeError: CUDA error: uncorrectable ECC error encountered"
    mark = tmp_path / "mark"
    script = f"import pathlib\nmark = pathlib.Path({str(mark)!r})\nif not mark.exists():\n"
    script += f"    mark.touch()\n    print({error!r})\n    raise SystemExit('the first one')"
    policy = {"maxRestarts": 2, "excludeFaultyNodes": True}
    start(kubernetes, namespace, ray, script, node="gpu-1", failurePolicy=policy)
    first = kubernetes.ray_cluster(namespace)["metadata"]["uid"]
    kubernetes.wait(namespace, "Running", "Restarting")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    operator.kill()
    operator.start()
    kubernetes.end_pods(namespace)
    second = kubernetes.ray_cluster(namespace)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Succeeded")
    status = kubernetes.status(namespace)
    (attempt,) = status["attempts"]
    assert (attempt["number"], attempt["rayClusterUid"], attempt["nodeAtFault"]) == (1, first, "gpu-1")
    assert (attempt["reason"], attempt["message"].endswith("the first one")) == ("ProgramFailed", True)
    assert (status["restarts"], status["network"]["excludedNodes"]) == (1, ["gpu-1"])
    affinity = second["spec"]["workerGroupSpecs"][0]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["gpu-1"]}]}
    assert [ray.jobs()[f"sum-{uid[:8]}"] for uid in (first, second["metadata"]["uid"])] == ["FAILED", "SUCCEEDED"]
    assert kubernetes.events(namespace).count("Restarting") == 1


def test_suspension_stops_the_ray_job(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    job_id = kubernetes.status(namespace)["rayCluster"]["jobId"]
    kubernetes.suspend(namespace, True)
    eventually("stopped", lambda: ray.jobs()[job_id] == "STOPPED")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    assert kubernetes.condition(namespace, "Failed")[0] == ""


def test_a_stop_that_the_status_does_not_hold_is_not_sent(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """The API server rejects the status while the job is suspended and resumed. The program is not touched."""
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    job_id = kubernetes.status(namespace)["rayCluster"]["jobId"]
    with kubernetes.deny_status_writes(namespace):
        kubernetes.suspend(namespace, True)
        failures = operator.unreported_failures()
        eventually("two failed reconciliations", lambda: operator.unreported_failures() >= failures + 2)
        assert ray.jobs()[job_id] == "RUNNING"
        kubernetes.suspend(namespace, False)
    gate.open()
    kubernetes.wait(namespace, "Succeeded")
    assert ray.jobs()[job_id] == "SUCCEEDED"


@pytest.mark.parametrize("cause", ["Cancelled", "DeadlineExceeded"])
def test_a_program_saves_its_state_before_the_job_fails(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate, tmp_path: Path, cause: str
) -> None:
    """The operator crashes after the request to stop."""
    ready = tmp_path / "ready"
    saved = tmp_path / "saved"
    script = f"import pathlib, signal, sys, time\nsaved = pathlib.Path({str(saved)!r})\n"
    script += "def save(*_):\n    time.sleep(1)\n    saved.touch()\n    sys.exit(143)\n"
    script += f"signal.signal(signal.SIGTERM, save)\npathlib.Path({str(ready)!r}).touch()\n{gate.wait}"
    start(kubernetes, namespace, ray, script)
    kubernetes.wait(namespace, "Running")
    eventually("the program handles SIGTERM", ready.exists)
    job_id = kubernetes.status(namespace)["rayCluster"]["jobId"]
    if cause == "Cancelled":
        kubernetes.cancel(namespace)
    else:
        kubernetes.patch(namespace, "rltrainingjob", "sum", {"spec": {"activeDeadlineSeconds": 1}})
    eventually("a stop request", lambda: (kubernetes.status(namespace).get("currentAttempt") or {}).get("stop"))
    operator.kill()
    operator.start()
    kubernetes.wait(namespace, "Failed")
    assert kubernetes.condition(namespace, "Failed")[1] == cause
    assert "may be missing" not in kubernetes.status(namespace)["message"]
    assert (saved.exists(), ray.jobs()[job_id]) == (True, "STOPPED")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)


def test_a_new_head_without_the_job_is_a_lost_head(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    ray.stop()
    kubernetes.wait(namespace, "Running", "RayUnreachable")
    assert kubernetes.condition(namespace, "Failed")[0] == ""
    ray.start()
    kubernetes.wait(namespace, "Failed", "HeadLost")


def test_steps_run_once_and_before_the_program(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate, tmp_path: Path
) -> None:
    """The second step fails in the first attempt. The operator crashes during the first step. `rlt logs --step` prints
    the output of a step. Ray unpacks the program and its package from archives."""
    runs = tmp_path / "runs"
    note = f"import pathlib, sys\nruns = pathlib.Path({str(runs)!r})\n"
    note += "runs.open('a').write(sys.argv[1] + '\\n')\nprint('this is', sys.argv[1], flush=True)\n"
    fail = "if runs.read_text().count('model') == 1:\n    raise SystemExit('no such model')"
    steps = {"data": note + gate.wait, "model": note + fail}
    prepare = [{"name": name, "command": [sys.executable, "-c", code, name]} for name, code in steps.items()]
    archives = {"code": {"code/program.py": "import own\n" + note}, "own": {"src/own/__init__.py": ""}}
    for name, files in archives.items():
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
    environment = {"workingDir": f"file://{tmp_path}/code.zip", "pyModules": [f"file://{tmp_path}/own.zip"]}
    framework = {
        "type": "command",
        "command": [sys.executable, "program.py", "program"],
        "prepare": prepare,
        "runtimeEnv": environment,
    }
    storage = {"claimName": "runs", "mountPath": str(tmp_path / "storage")}
    spec = {**o.COMMAND_SPEC, "framework": framework, "storage": storage, "failurePolicy": {"maxRestarts": 1}}
    start_job(kubernetes, namespace, ray, spec)
    eventually(
        "the step is recorded",
        lambda: (kubernetes.status(namespace).get("currentAttempt") or {}).get("prepareStep") == "data",
    )
    assert kubernetes.condition(namespace, "Running")[:2] == ("False", "Preparing")
    operator.kill()
    operator.start()
    with follow_logs(kubernetes, namespace, "--step", "data") as following:
        assert following.stdout
        assert any(line == "this is data\n" for line in following.stdout)
        gate.open()
        assert following.wait(timeout=300) == 0
    kubernetes.wait(namespace, "Running", "Restarting")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    kubernetes.ray_cluster(namespace)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Succeeded")
    assert runs.read_text().split() == ["data", "model", "model", "program"]
    status = kubernetes.status(namespace)
    assert [each["name"] for each in status["prepared"]] == ["data", "model"]
    (attempt,) = status["attempts"]
    assert attempt["reason"] == "PrepareFailed"
    assert attempt["message"].startswith("Step model of spec.framework.prepare failed: ")
    assert attempt["message"].endswith("this is model no such model")


def test_a_failed_preflight_check_fails_the_job(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead
) -> None:
    """The real checks of a command on a machine that does not resolve the head's Service. The operator crashes during
    the checks."""
    start_job(kubernetes, namespace, ray, {**o.COMMAND_SPEC, "preflight": {"level": "basic"}})
    kubernetes.wait(namespace, "PreflightPassed", "Checking")
    preflight_id = kubernetes.status(namespace)["rayCluster"]["preflightJobId"]
    operator.kill()
    operator.start()
    kubernetes.wait(namespace, "Failed", "PreflightFailed")
    assert kubernetes.condition(namespace, "PreflightPassed")[:2] == ("False", "PreflightFailed")
    found = {check["name"]: check for check in kubernetes.status(namespace)["preflight"]}
    assert {name for name, check in found.items() if check["result"] == "failed"} == {"dns"}
    assert "cannot resolve sum-head-svc" in found["dns"]["message"]
    assert {check["stage"] for check in found.values()} == {"network"}
    uid = preflight_id.removesuffix("-preflight")
    assert {name: state for name, state in ray.jobs().items() if name.startswith(uid)} == {preflight_id: "FAILED"}
    eventually("one event", lambda: kubernetes.events(namespace).count("PreflightFailed") == 1)
