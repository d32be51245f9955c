"""A Ray job's life with a real Ray head: the operator submits, follows, stops and reports over Ray's own HTTP API.

Pods and service are played by the test; the service leads to a head that runs on this machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import observed as o
import pytest
from apiserver.in_cluster import PODS, READY, Kubernetes, Operator, RayHead, eventually
from gate import Gate

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def ray() -> Iterator[RayHead]:
    """`ray start --head`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing: it tells this machine's address
        head = RayHead(probe.getsockname()[0])
    head.start()
    yield head
    head.stop()


def start(kubernetes: Kubernetes, namespace: str, ray: RayHead, script: str) -> None:
    """A job whose command is a Python script, on a cluster that is ready."""
    spec = {
        **o.COMMAND_SPEC,
        "framework": {"type": "command", "command": [sys.executable, "-c", script]},
    }
    kubernetes.create_job(namespace, spec)
    cluster = kubernetes.ray_cluster(namespace)
    config = kubernetes.get(namespace, "configmap", "sum-training")
    assert config
    volumes = cluster["spec"]["headGroupSpec"]["template"]["spec"]["volumes"]
    ray.mount(next(volume["configMap"] for volume in volumes if volume["name"] == "training-config"), config["data"])
    kubernetes.make_service(namespace, ray)
    at = {"podIP": ray.address, "podIPs": [{"ip": ray.address}]}
    kubernetes.play_kuberay(namespace, {pod: {**READY, **at} for pod in PODS})


def test_a_job_runs_to_its_end_through_a_crash_of_the_operator(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    last = o.final_log().splitlines()[-1]
    start(kubernetes, namespace, ray, f"{gate.wait}print({last!r})")
    kubernetes.wait(namespace, "Running")
    (id,) = (id for id in ray.jobs() if id == kubernetes.status(namespace)["rayCluster"]["jobId"])
    operator.kill()
    operator.start()
    gate.open()
    kubernetes.kubectl("wait", "--for=condition=Succeeded", "rltrainingjob/sum", "-n", namespace, "--timeout=60s")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    kubernetes.wait(namespace, "Reconciling", "False")
    status = kubernetes.status(namespace)
    assert status["progress"]["display"] == "100%"
    assert status["startTime"] <= status["completionTime"]
    assert [other for other in ray.jobs() if other.startswith("sum-") and other != id] == []
    assert sorted(kubernetes.events(namespace)) == ["Accepted", "ClusterReady", "Running", "Succeeded"]


def test_what_a_command_prints_is_in_kubectl_get(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """A child of the command prints it, as verl's driver prints what its actors say."""
    steps = [f"step:{n} - critic/rewards/mean:{n / 8} - actor/kl_loss:0.0{n} - timing_s/step:30.0" for n in (1, 2)]
    printing = f"print('Total training steps: 8')\nfor line in {steps}: print(f'(TaskRunner pid=7) {{line}}')"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {printing!r}])\n"
    start(kubernetes, namespace, ray, script + gate.wait)
    eventually("step 2", lambda: (kubernetes.status(namespace).get("progress") or {}).get("step") == 2, 60)
    told = kubernetes.status(namespace)["progress"]
    assert (told["totalSteps"], told["display"], told["eta"]) == (8, "25%", "3m0s")
    assert (told["metrics"]["reward"], told["metrics"]["kl"]) == (0.25, 0.02)
    (row,) = kubernetes.kubectl("get", "rltrainingjobs", "-n", namespace, "-o", "wide", "--no-headers").splitlines()
    assert {"Running", "2", "25%", "0.25", "3m0s", "0.02"} <= set(row.split())
    gate.open()
    kubernetes.wait(namespace, "Succeeded")
    assert kubernetes.condition(namespace, "Succeeded")[2] == "2 of 8 steps are done."


def test_the_output_is_followed_to_its_end(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    """`rlt logs -f` by the API server, from a line before it is called to the last one."""
    start(kubernetes, namespace, ray, f"print('early', flush=True)\n{gate.wait}print('late')")
    command = [sys.executable, "-m", "rlt_operator.cli.main", "logs", "sum", "--follow", "-n", namespace]
    command += ["--kubeconfig", str(kubernetes.cluster.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        assert any(line == "early\n" for line in following.stdout)
        gate.open()
        assert [line for line in following.stdout if line == "late\n"] == ["late\n"]
        assert following.wait(timeout=30) == 0


def test_a_failing_command_says_why(kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead) -> None:
    start(kubernetes, namespace, ray, "raise SystemExit('there is no reward called fame')")
    kubernetes.wait(namespace, "Failed")
    assert kubernetes.condition(namespace, "Failed")[1:] == ("ProgramFailed", "there is no reward called fame")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)


def test_suspension_stops_the_ray_job(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    id = kubernetes.status(namespace)["rayCluster"]["jobId"]
    kubernetes.suspend(namespace, True)
    eventually("stopped", lambda: ray.jobs()[id] == "STOPPED")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    assert kubernetes.condition(namespace, "Failed")[0] == "False"


def test_a_new_head_that_does_not_know_the_job_is_a_lost_head(
    kubernetes: Kubernetes, operator: Operator, namespace: str, ray: RayHead, gate: Gate
) -> None:
    start(kubernetes, namespace, ray, gate.wait)
    kubernetes.wait(namespace, "Running")
    ray.stop()
    kubernetes.wait(namespace, "Running", "RayUnreachable")
    assert kubernetes.condition(namespace, "Failed")[0] == "False"
    ray.start()
    kubernetes.wait(namespace, "Failed", "HeadLost")
