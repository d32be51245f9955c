"""The lifecycle hooks of a job's pods, run by the kubelet: end the program before the pods end.

    python3 rlt_pod.pyz hooks post-start|pre-stop|keep-logs

A program can save its state only while all pods still run. Kubernetes ends pods one by one (a drain, a preemption, a
node shutdown) or all at once (a deleted Ray cluster). In each case the preStop hook of a pod that ends asks Ray to
stop the job and waits for it, within terminationGracePeriodSeconds. Without a running job the hook returns at once.
The preStop hook then copies the logs of Ray to the run directory (keep_logs.py). In a pod that only generates for rlt's
trainer, it copies the logs alone: the program continues without this pod. The file has no imports outside of the
standard library and rlt_pod, because it runs in the image of the job.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
import urllib.request
from pathlib import Path

from rlt_pod import keep_logs

DASHBOARD_PORT = 8265
ADDRESS_FILE = "/tmp/rlt-head-address"
"""The IP address of the head, from the postStart hook. A head that terminates has no DNS name."""
POLL_INTERVAL_S = 0.5
REQUEST_TIMEOUT_S = 5.0
MAX_ERRORS = 2
"""Failed requests in a row before the hook returns: the head is gone."""
MAX_ERRORS_AFTER_STOP = 6
"""The same while a program saves its state, which may keep the head busy."""
LINGER_S = 3.0
"""Time that the head stays up after the program has ended, for the other pods and the operator to read its result."""


def main(arguments: list[str]) -> int:
    """Run a hook. A failure is printed and not reported: the kubelet would restart a container for it."""
    hooks = {
        "post-start": [save_head_address],
        "pre-stop": [end_program, keep_logs.keep_logs],
        "keep-logs": [keep_logs.keep_logs],
    }
    if arguments and arguments[0] in hooks:
        for hook in hooks[arguments[0]]:
            try:
                hook()
            except (OSError, ValueError) as error:
                print(f"hooks {arguments[0]}: {error}", file=sys.stderr)
        return 0
    print(f"usage: rlt_pod.pyz hooks {'|'.join(hooks)}", file=sys.stderr)
    return 2


def save_head_address() -> None:
    """Save the address of the head in a worker pod. KubeRay sets FQ_RAY_IP there."""
    if name := os.environ.get("FQ_RAY_IP"):
        address = socket.getaddrinfo(name, DASHBOARD_PORT, type=socket.SOCK_STREAM)[0][4][0]
        Path(ADDRESS_FILE).write_text(str(address), encoding="ascii")


def end_program() -> None:
    """Stop the Ray jobs of the cluster and wait until they have ended. The kubelet then ends Ray in this pod."""
    is_worker = "FQ_RAY_IP" in os.environ
    stopped: set[str] = set()
    errors = 0
    while errors < (MAX_ERRORS_AFTER_STOP if stopped else MAX_ERRORS):
        try:
            running = list_running_jobs()
            for job in running - stopped:
                request("POST", f"/api/jobs/{job}/stop")
                stopped.add(job)
            if not running:
                break
            errors = 0
        except (OSError, ValueError, http.client.HTTPException):
            errors += 1
        time.sleep(POLL_INTERVAL_S)
    if stopped and not is_worker:
        time.sleep(LINGER_S)


def list_running_jobs() -> set[str]:
    """IDs of the submitted Ray jobs that have not ended."""
    jobs = json.loads(request("GET", "/api/jobs/"))
    return {job["submission_id"] for job in jobs if job["submission_id"] and job["status"] in ("PENDING", "RUNNING")}


def request(method: str, path: str) -> bytes:
    """Call the job API of the head. Raises OSError or HTTPException."""
    call = urllib.request.Request(f"http://{get_head()}:{DASHBOARD_PORT}{path}", method=method, headers=build_headers())
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(call, timeout=REQUEST_TIMEOUT_S) as response:
        return bytes(response.read())


def get_head() -> str:
    """The host of the head: this pod, or the saved address."""
    name = os.environ.get("FQ_RAY_IP")
    if name is None:
        return "127.0.0.1"
    try:
        address = Path(ADDRESS_FILE).read_text(encoding="ascii")
    except OSError:
        return name
    return f"[{address}]" if ":" in address else address


def build_headers() -> dict[str, str]:
    """The token of Ray's authentication, if the pod has one (ray/_private/authentication, Ray 2.60)."""
    token = os.environ.get("RAY_AUTH_TOKEN")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        token = Path(path).read_text(encoding="ascii").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
