"""Faults that a hostile tenant causes in its namespace, while a job of another tenant learns.

None of them may end that job, restart a pod of the operator or change the result. The pods are compared when the fault
is over: a pod with another uid, another number of restarts or without readiness is an error.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from rlt_e2e.api_objects import create_object, delete_object, read_object, read_objects
from rlt_e2e.chaos.pods import Target
from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import SYSTEM_NAMESPACE
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_condition,
    await_job,
    build_command_job,
    get_condition,
    is_true,
)

TENANT = "chaos-tenant"
HOSTILE_BYTES = 60_000
"""Length of a string. The CRD and the webhook accept a spec of at most 512 KiB."""
FRAGMENTS = (
    "a",
    " ",
    "((",
    "$(",
    "--a.b=",
    "https://a:",
    "${A:-",
    "/../",
    "\\",
    "'\"",
    "=,",
    "\u200b",
    "0x",
    "Traceback ",
)
FLOOD_S = 30.0
FLOOD_CLIENTS = 8
STEPS = """
import itertools, threading
for step in itertools.count(1):
    print(f"step:{step} - critic/rewards/mean:0.5", flush=True)
    threading.Event().wait(1)
"""
HOSTILE_DASHBOARD = """
import os, sys
command = open("/proc/self/cmdline", "rb").read().decode().split("\\0")[:-1]
if "--port=8265" in command and any(word.endswith("dashboard.py") for word in command):
    if os.fork():
        os.environ.pop("PYTHONPATH")
        os.execv(sys.executable, [word.replace("--port=8265", "--port=8270") for word in command])
    import http.server, itertools
    answers = itertools.cycle([
        b"[" * 200_000, b'{"status": ' + b"9" * 200_000 + b"}", b'{"submission_id": "\\xff\\xfe", "status": NaN}',
        b'[{"status": {"status": []}, "message": 1}]', b"null", b"\\0" * 100_000, b"<html>",
        b'{"a": "' + b"a" * 30_000_000,
    ])
    class Hostile(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer = b"success" if self.path.endswith("healthz") else next(answers)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)
        do_POST = do_DELETE = do_PUT = do_GET
        def log_message(self, *arguments):
            pass
    http.server.ThreadingHTTPServer(("", 8265), Hostile).serve_forever()
"""
"""A sitecustomize.py that moves Ray's dashboard to another port and answers in its place, also KubeRay's probe."""


@dataclass(frozen=True)
class Health:
    """A pod of the operator or of its webhook."""

    uid: str
    restarts: int
    is_ready: bool


def send_hostile_text(target: Target) -> str:
    """Create jobs with long strings that an unfortunate pattern reads in quadratic time, each until its verdict."""
    cluster = target.cluster
    before = prepare(cluster)
    rejected = 0
    for index, fragment in enumerate(FRAGMENTS):
        text = fragment * (HOSTILE_BYTES // len(fragment.encode()))
        job = build_command_job(f"text-{index}", "python3", "-c", text, f"--option={text}")
        job["spec"] |= {"suspend": True}
        job["metadata"]["namespace"] = TENANT
        try:
            create_object(cluster, TENANT, job)
        except ValueError:
            rejected += 1  # by the CRD or the webhook, which is a verdict as well
            continue
        await_job(cluster, TENANT, f"text-{index}", _has_verdict, what="a verdict", timeout_s=EVENT_TIMEOUT_S)
    finish(cluster, before)
    return f"{len(FRAGMENTS)} jobs with strings of {HOSTILE_BYTES // 1000} kB, {rejected} of them rejected on arrival"


def flood_webhook(target: Target) -> str:
    """Send large jobs to admission as fast as a few clients can. `dryRun` stores nothing, so that no quota ends it."""
    cluster = target.cluster
    before = prepare(cluster)
    job = build_command_job("flood", "python3", "-c", "pass", "x" * 400_000)
    job["metadata"]["namespace"] = TENANT
    end = time.monotonic() + FLOOD_S

    def send() -> int:
        sent = 0
        while time.monotonic() < end:
            with suppress(ValueError):  # a review that is rejected or delayed is also a review
                create_object(cluster, TENANT, job, dryRun="All")
            sent += 1
        return sent

    with ThreadPoolExecutor(FLOOD_CLIENTS) as pool:
        reviews = sum(pool.map(lambda _: send(), range(FLOOD_CLIENTS)))
    finish(cluster, before)
    return f"{reviews} reviews of 0.4 MB by {FLOOD_CLIENTS} clients in {FLOOD_S:.0f} s"


def answer_malformed(target: Target) -> str:
    """Run a job whose head answers the operator with bytes that are not Ray's, until the status names it."""
    cluster = target.cluster
    before = prepare(cluster)
    files = {"sitecustomize.py": HOSTILE_DASHBOARD}
    create_object(
        cluster, TENANT, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile"}, "data": files}
    )
    container = {
        "name": "ray-head",
        "env": [{"name": "PYTHONPATH", "value": "/hostile"}],
        "volumeMounts": [{"name": "hostile", "mountPath": "/hostile"}],
    }
    volume = {"name": "hostile", "configMap": {"name": "hostile"}}
    job = build_command_job("malformed", "python3", "-c", STEPS)
    job["spec"]["cluster"]["head"]["podTemplate"] = {"spec": {"containers": [container], "volumes": [volume]}}
    apply_job(cluster, TENANT, job)
    named = await_job(cluster, TENANT, "malformed", _names_answer, what="its message", timeout_s=START_TIMEOUT_S)
    finish(cluster, before)
    return f"a head whose answers are not Ray's: {named['status']['message']}"


def delete_namespace(target: Target) -> str:
    """Delete the namespace of a job that runs."""
    cluster = target.cluster
    before = prepare(cluster)
    apply_job(cluster, TENANT, build_command_job("gone", "python3", "-c", STEPS))
    await_condition(cluster, TENANT, "gone", "Running", timeout_s=START_TIMEOUT_S)
    cluster.kubectl("delete", "namespace", TENANT, "--wait", "--timeout=300s")
    finish(cluster, before)
    return f"namespace {TENANT} with a job that ran"


def prepare(cluster: Cluster) -> dict[str, Health]:
    """Create the tenant's namespace, and return the pods of the operator."""
    remove(cluster)
    create_object(cluster, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    return read_health(cluster)


def finish(cluster: Cluster, before: dict[str, Health]) -> None:
    """Delete the tenant's namespace. Raises ValueError if a pod of the operator is not as before."""
    after = read_health(cluster)
    remove(cluster)
    if after != before or not all(pod.is_ready for pod in after.values()):
        raise ValueError(f"the pods of the operator changed: before {json.dumps(before, default=vars)}, then {after}")


def read_health(cluster: Cluster) -> dict[str, Health]:
    """Read the pods of the operator and of its webhook by name."""
    return {
        pod["metadata"]["name"]: Health(
            pod["metadata"]["uid"],
            sum(each["restartCount"] for each in pod["status"].get("containerStatuses", [])),
            any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"]),
        )
        for pod in read_objects(cluster, SYSTEM_NAMESPACE, "pod")
    }


def remove(cluster: Cluster) -> None:
    """Delete the tenant's namespace, if it exists, and wait until it is gone."""
    if read_object(cluster, "", "namespace", TENANT):
        for job in read_objects(cluster, TENANT, "rltrainingjob"):
            delete_object(cluster, TENANT, "rltrainingjob", job["metadata"]["name"])
        cluster.kubectl("delete", "namespace", TENANT, "--ignore-not-found", "--wait", "--timeout=300s")


def _has_verdict(job: Job) -> bool:
    return is_true(job, "Accepted") or get_condition(job, "Accepted")["status"] == "False"


def _names_answer(job: Job) -> bool:
    return "waiting for Ray's job API: the answer to" in job["status"].get("message", "")
