"""A Ray head that needs the token of its job: the operator and `rlt` have it, and other clients are rejected."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import observed as o
import pytest
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.ray_head import RayHead, find_address
from apiserver.test_ray_jobs import make_ready
from apiserver.waiting import eventually
from gate import Gate

from rlt_core.children.ray_token import KEY, VOLUME
from rlt_pod.report.driver_report import METRICS_PORT

pytestmark = pytest.mark.apiserver

VERL_LINE = "step:1 - critic/rewards/mean:0.5 - timing_s/step:30.0"


@pytest.fixture
def ray() -> Iterator[RayHead]:
    """A Ray head that `start_with_token` starts."""
    head = RayHead(find_address())
    yield head
    if head.process:
        head.stop()


def read_token(kubernetes: Kubernetes, namespace: str, name: str = "sum") -> str:
    """The token that the pods of the job mount."""
    cluster = kubernetes.ray_cluster(namespace, name)
    volumes = cluster["spec"]["headGroupSpec"]["template"]["spec"]["volumes"]
    (secret,) = (each["secret"]["secretName"] for each in volumes if each["name"] == VOLUME)
    found = kubernetes.get(namespace, "secret", secret)
    assert found
    return base64.b64decode(found["data"][KEY]).decode()


def attack(url: str, token: str | None = None, body: dict[str, Any] | None = None) -> int:
    """The HTTP status that a client gets."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, headers=headers, data=data)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_only_the_operator_and_rlt_reach_ray_and_the_driver(
    kubernetes: Kubernetes, operator: Operator, namespace: str, rlt: Rlt, ray: RayHead, gate: Gate
) -> None:
    script = f"print({VERL_LINE!r}, flush=True)\n{gate.wait}"
    command = {"type": "command", "command": ["python3", "-c", script], "totalSteps": 2}
    spec = {**o.COMMAND_SPEC, "framework": command}
    kubernetes.create_job(namespace, spec)
    ray.token = read_token(kubernetes, namespace)
    ray.start()
    mount(kubernetes, namespace, ray)
    kubernetes.make_service(namespace, ray)
    make_ready(kubernetes, namespace, ray)
    kubernetes.wait(namespace, "Running")
    job_id = kubernetes.status(namespace)["rayCluster"]["jobId"]
    eventually("the progress", lambda: (kubernetes.status(namespace).get("progress") or {}).get("step") == 1)

    jobs = f"http://{ray.address}:{ray.port}/api/jobs"
    driver = f"http://{ray.address}:{METRICS_PORT}"
    submission = {"entrypoint": "echo stolen", "submission_id": "mine"}
    others = read_token_of_another_job(kubernetes, namespace)
    for token, status in ((None, {401}), ("guessed", {401, 403}), (others, {401, 403})):
        assert attack(f"{jobs}/", token, submission) in status
        assert attack(f"{jobs}/{job_id}/stop", token, {}) in status
        assert attack(f"{jobs}/{job_id}/logs", token) in status
        assert attack(f"http://{ray.address}:{ray.port}/api/v0/logs/file?submission_id={job_id}", token) in status
        for path in ("/progress", "/history", "/rollouts", "/spans", "/changes", "/logs"):
            assert attack(driver + path, token) in status
    assert set(ray.jobs()) == {job_id}
    assert ray.jobs()[job_id] == "RUNNING"
    # What KubeRay's probes and Prometheus read needs no token.
    assert attack(f"http://{ray.address}:{ray.port}/api/gcs_healthz") == 200
    assert attack(f"{driver}/metrics") == 200

    assert VERL_LINE in rlt("logs", "sum").stdout
    gate.open()
    kubernetes.wait(namespace, "Succeeded")
    assert ray.token not in operator.log.read_text()
    assert ray.token not in kubernetes.kubectl("get", "rltrainingjob,raycluster,events", "-n", namespace, "-o", "yaml")


def mount(kubernetes: Kubernetes, namespace: str, ray: RayHead) -> None:
    ray.mount(kubernetes, kubernetes.ray_cluster(namespace))


def read_token_of_another_job(kubernetes: Kubernetes, namespace: str) -> str:
    kubernetes.create_job(namespace, o.COMMAND_SPEC, "other")
    return read_token(kubernetes, namespace, "other")
