"""Pods of other people cannot use the Ray cluster of a job, and the operator asks none that looks like its head.

The embedded cluster does not enforce NetworkPolicies, so that the token alone protects the job here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster, images
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    await_job,
    build_command_job,
    get_step,
    is_true,
    read_job,
)

pytestmark = pytest.mark.cluster

STEPS = """
import itertools, threading
for step in itertools.count(1):
    print(f"step:{step} - critic/rewards/mean:0.5", flush=True)
    threading.Event().wait(1)
"""
FORGED_HEAD = """
import http.server, json
class Forged(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([{"submission_id": "JOB", "status": "SUCCEEDED", "type": "SUBMISSION"}]).encode())
http.server.ThreadingHTTPServer(("", 8265), Forged).serve_forever()
"""
ATTACK = """
import json, sys, urllib.error, urllib.request
head, job = sys.argv[1:]
def ask(method, port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{head}:{port}{path}", data=data, method=method, headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code
def ask_gcs():
    from ray._raylet import GcsClient
    try:
        return f"{len(GcsClient(address=f'{head}:6379').get_all_node_info(timeout=60))} nodes"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
entrypoint = {"entrypoint": "true"}
found = {
    "submit": ask("POST", 8265, "/api/jobs/", entrypoint),
    "list": ask("GET", 8265, "/api/jobs/"),
    "stop": ask("POST", 8265, f"/api/jobs/{job}/stop", {}),
    "delete": ask("DELETE", 8265, f"/api/jobs/{job}"),
    "logs": ask("GET", 8265, f"/api/jobs/{job}/logs"),
    "nodes": ask("GET", 8265, "/nodes?view=summary"),
    "progress": ask("GET", 8090, "/progress"),
    "rollouts": ask("GET", 8090, "/rollouts"),
    "forged token": ask("GET", 8090, "/progress?token=x"),
    "gcs": ask_gcs(),
}
print(json.dumps(found))
"""


@pytest.fixture
def elsewhere(cluster: Cluster, namespace: str) -> Iterator[str]:
    """Another namespace."""
    name = f"{namespace[:50]}-elsewhere"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait", "--timeout=300s")


def start_pod(cluster: Cluster, namespace: str, name: str, program: str, labels: dict[str, str]) -> None:
    container = {"name": "main", "image": images.TRAINER, "command": ["python3", "-c", program]}
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
        "terminationGracePeriodSeconds": 1,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(pod))
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s")


def attack(cluster: Cluster, namespace: str, pod: str, head: str, job: str) -> dict[str, Any]:
    """Call Ray and the driver from the pod, without a token."""
    output = cluster.kubectl("-n", namespace, "exec", pod, "--", "python3", "-c", ATTACK, head, job)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_other_pods_neither_use_nor_replace_the_head_of_a_job(cluster: Cluster, namespace: str, elsewhere: str) -> None:
    name = apply_job(cluster, namespace, build_command_job("guarded", "python3", "-c", STEPS))
    running = await_condition(cluster, namespace, name, "Running", timeout_s=START_TIMEOUT_S)
    heads = cluster.kubectl("-n", namespace, "get", "pods", "-l", "ray.io/node-type=head", "-o", "json")
    (head,) = json.loads(heads)["items"]
    ray_job = running["status"]["rayCluster"]["jobId"]

    start_pod(cluster, namespace, "forged-head", FORGED_HEAD.replace("JOB", ray_job), head["metadata"]["labels"])
    waiting = "import threading; threading.Event().wait()"
    start_pod(cluster, elsewhere, "attacker", waiting, {})
    for place, pod in ((namespace, "forged-head"), (elsewhere, "attacker")):
        answers = attack(cluster, place, pod, head["status"]["podIP"], ray_job)
        gcs = answers.pop("gcs")
        assert set(answers.values()) <= {401, 403}, (place, answers)
        assert gcs.startswith("AuthenticationError: RPC error: InvalidAuthToken"), gcs

    before = get_step(read_job(cluster, namespace, name))
    later = await_job(
        cluster, namespace, name, lambda job: get_step(job) > before + 5, what="steps", timeout_s=EVENT_TIMEOUT_S
    )
    assert is_true(later, "Running")
    assert later["status"]["rayCluster"] == running["status"]["rayCluster"]
    assert cluster.kubectl("-n", namespace, "logs", "forged-head") == "", "no request arrived, which http.server logs"

    cluster.kubectl("-n", namespace, "delete", "pod", "forged-head", "--now")  # it has the labels of the job
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait", "--timeout=300s")
    await_cleanup(cluster, namespace, name)
