"""The lifecycle hooks of the pods, with an HTTP server in place of Ray's job API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import observed as o
import pytest

from rlt_core.children.raycluster import build_ray_cluster
from rlt_pod import hooks as pod_hooks


class RayJobs(HTTPServer):
    """Ray's job API: a job that is stopped is reported as RUNNING by `reports_to_end` more requests."""

    def __init__(self, *jobs: Mapping[str, object], reports_to_end: int = 2) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.jobs = list(jobs)
        self.reports_to_end = reports_to_end
        self.requests: list[str] = []
        self.authorization: set[str | None] = set()


class Answer(BaseHTTPRequestHandler):
    server: RayJobs

    def do_GET(self) -> None:
        stopping = any(each.startswith("POST") for each in self.server.requests)
        self.record()
        self.server.reports_to_end -= stopping
        if self.server.reports_to_end == 0:
            self.server.jobs = [{**job, "status": "STOPPED"} for job in self.server.jobs]
        self.answer(json.dumps(self.server.jobs))

    def do_POST(self) -> None:
        self.record()
        self.answer("{}")

    def record(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.authorization.add(self.headers.get("Authorization"))

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pod_hooks, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(pod_hooks, "LINGER_S", 0.01)
    monkeypatch.setattr(pod_hooks, "ADDRESS_FILE", str(tmp_path / "address"))
    monkeypatch.delenv("FQ_RAY_IP", raising=False)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RayJobs]]:
    """Servers that the test adds are closed at its end."""
    servers: list[RayJobs] = []
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def started(server: RayJobs, servers: list[RayJobs], monkeypatch: pytest.MonkeyPatch) -> RayJobs:
    servers.append(server)
    monkeypatch.setattr(pod_hooks, "DASHBOARD_PORT", server.server_port)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


RUNNING = {"submission_id": "sum-1", "status": "RUNNING"}
LIST = "GET /api/jobs/"
STOP = "POST /api/jobs/sum-1/stop"


def test_a_running_job_is_stopped_once_and_awaited(serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = {"submission_id": None, "status": "RUNNING"}  # of a program that connects to Ray by itself
    ray = started(RayJobs(driver, RUNNING, {"submission_id": "old", "status": "FAILED"}), serve, monkeypatch)
    assert pod_hooks.main(["pre-stop"]) == 0
    assert ray.requests == [LIST, STOP, LIST, LIST]
    assert ray.authorization == {None}


def test_a_pod_without_which_the_program_continues_stops_no_job(
    serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = started(RayJobs(RUNNING), serve, monkeypatch)
    spec = {**o.SPEC, "rollout": {"mode": "separate", "workerGroup": "engines"}}
    spec["cluster"] = {
        **o.SPEC["cluster"],
        "workers": [{**o.SPEC["cluster"]["workers"][0], "name": name} for name in ("train", "engines")],
    }
    job = o.job(spec)
    assert job.spec
    groups = build_ray_cluster(job, job.spec)["spec"]["workerGroupSpecs"]
    hooks = [group["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] for group in groups]
    training, generating = (hook[-1].split(" hooks ")[1].split()[0] for hook in hooks)
    assert pod_hooks.main([generating]) == 0
    assert ray.requests == []
    assert pod_hooks.main([training]) == 0
    assert STOP in ray.requests


def test_without_a_running_job_the_pod_ends_at_once(serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch) -> None:
    ray = started(RayJobs({"submission_id": "sum-1", "status": "FAILED"}), serve, monkeypatch)
    assert pod_hooks.main(["pre-stop"]) == 0
    assert ray.requests == [LIST]


def test_a_lost_head_is_not_awaited(serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch) -> None:
    ray = RayJobs()
    monkeypatch.setattr(pod_hooks, "DASHBOARD_PORT", ray.server_port)
    ray.server_close()  # nothing listens on the port
    assert pod_hooks.main(["pre-stop"]) == 0


def test_a_worker_uses_the_address_that_the_head_had(
    serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A head that terminates is removed from DNS before its program has ended."""
    ray = started(RayJobs(RUNNING), serve, monkeypatch)
    monkeypatch.setenv("FQ_RAY_IP", "localhost")
    assert pod_hooks.main(["post-start"]) == 0
    assert (tmp_path / "address").read_text() in ("127.0.0.1", "::1")
    (tmp_path / "address").write_text("127.0.0.1")
    monkeypatch.setenv("FQ_RAY_IP", "gone.invalid")
    assert pod_hooks.main(["pre-stop"]) == 0
    assert STOP in ray.requests


def test_a_failed_hook_does_not_fail_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FQ_RAY_IP", "gone.invalid")
    assert pod_hooks.main(["post-start"]) == 0
    assert pod_hooks.main(["pre-stop"]) == 0


def test_the_token_of_ray_is_sent(serve: list[RayJobs], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = started(RayJobs(), serve, monkeypatch)
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    pod_hooks.main(["pre-stop"])
    assert ray.authorization == {"Bearer secret"}


def test_a_pods_processes_share_a_namespace_unless_it_is_the_nodes() -> None:
    """Process 1 of a namespace ignores SIGTERM unless it handles it. Kubernetes rejects both fields together."""
    head = {"podTemplate": {"spec": {"hostPID": True}}}
    job = o.job({**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": head}})
    assert job.spec
    spec = build_ray_cluster(job, job.spec)["spec"]
    pods = (spec["headGroupSpec"]["template"]["spec"], spec["workerGroupSpecs"][0]["template"]["spec"])
    assert [pod.get("shareProcessNamespace") for pod in pods] == [None, True]
