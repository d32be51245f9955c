"""An API server over HTTP with tokens, rights and jobs, which counts reviews and records credentials.

The tests with the marker apiserver repeat the same against a real one.
"""

from __future__ import annotations

import json
import socket
import threading
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rlt_core.run_record import RECORD_KEY
from rlt_core.usage_record import build_record

SERVER_TOKEN = "token-of-the-server"
DRIVER = {
    "/history": '{"step": 1, "critic/rewards/mean": 0.5}\n',
    "/rollouts": '{"index": 0, "response": "a\u2028b", "reward": 1.0}\n',
    "/spans": '{"rank": -1, "phase": "gen", "start": 1.0, "end": 2.0, "step": 1}\n',
    "/changes": '{"suite": "math", "step": 2, "prompts": 9, "won": 1, "lost": 0, "samples": ['
    '{"index": 0, "baseScore": 0, "score": 1, "response": "a\u2028b"}]}\n',
    "/logs": '{"path": "1/program.log", "size": 1, "time": 1}\n',
}
"""What each driver serves."""
NO_SERVICE = {"kind": "Status", "message": "no endpoints available for service"}
"""What the API server's proxy answers without a head."""
Json = dict[str, Any]


@dataclass
class SimulatedApiServer:
    """What tokens exist, who may do what, and which requests were made."""

    users: dict[str, str] = field(default_factory=dict)
    """Token -> user name."""
    rights: set[tuple[str, str, str, str]] = field(default_factory=set)
    """User, verb, namespace, and the name of a job or an empty one for all."""
    full_rights: set[str] = field(default_factory=set)
    """Tokens of persons that can read jobs, pods, events and drivers."""
    job_rights: set[str] = field(default_factory=set)
    """Tokens of persons that can read jobs alone."""
    jobs: list[Json] = field(default_factory=list)
    audiences: list[str] = field(default_factory=lambda: ["api"])
    """The audiences in the status of a TokenReview."""
    config_maps: list[Json] = field(default_factory=list)
    usage_records: list[Json] = field(default_factory=list)
    """The records of deleted jobs. Tokens with full rights can list them."""
    record_rights: set[tuple[str, str]] = field(default_factory=set)
    """Token, and name of the record that it can get."""
    is_down: bool = False
    reviews: Counter[str] = field(default_factory=Counter)
    readers: list[tuple[str, str]] = field(default_factory=list)
    """Path and token of each request for pods, logs, events or a record of a driver."""

    def add_job(self, namespace: str, name: str) -> None:
        metadata = {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1", "generation": 1}
        self.jobs.append({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})

    def use(self, namespace: str, name: str, **by: int) -> None:
        """A job has used accelerators: one that exists, or a deleted one."""
        usage = {"acceleratorSeconds": sum(by.values()), "by": by, "observedTime": "2026-01-02T00:00:00Z"}
        for job in self.jobs:
            if (job["metadata"]["namespace"], job["metadata"]["name"]) == (namespace, name):
                job["status"]["usage"] = usage
                return
        deleted = {"metadata": {"namespace": namespace, "name": name, "uid": name}, "status": {"usage": usage}}
        self.usage_records.append(build_record("rlt-system", namespace, [deleted], None))

    def end_job(self, name: str, record: Json) -> None:
        """The job has ended, its driver is gone, and the operator has kept the record."""
        job = next(each for each in self.jobs if each["metadata"]["name"] == name)
        progress = {"step": record["steps"][-1], "totalSteps": 9, "percent": 100, "display": "100%"}
        progress["lastUpdated"] = "2026-01-02T03:04:05Z"
        job["status"] = {"phase": "Succeeded", "progress": progress}
        owner = {"kind": "RLTrainingJob", "name": name, "uid": name, "controller": True}
        metadata = {"name": f"{name}-record", "ownerReferences": [owner]}
        data = {RECORD_KEY: b64encode(zlib.compress(json.dumps(record).encode())).decode()}
        self.config_maps.append({"metadata": metadata, "binaryData": data})

    async def answer(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        path = request.url.path
        if self.is_down:
            return Response("unavailable", status_code=503)
        if path.endswith(("/pods", "/events", "/log", *DRIVER)):
            self.readers.append((path, token))
        if token in self.full_rights or (token in self.job_rights and "/rltrainingjobs/" in path):
            return self._read_as_person(path)
        if "/configmaps" in path and token in self.users:
            return self._read_usage_record(path.rpartition("/")[2], token)
        if path.endswith(("/pods", "/events")):
            return JSONResponse({"message": f"{path.rpartition('/')[2]} is forbidden"}, status_code=403)
        if token != SERVER_TOKEN:
            return JSONResponse({"message": "forbidden"}, status_code=403)
        if path.endswith("/rltrainingjobs"):
            return JSONResponse({"items": self.jobs, "metadata": {"resourceVersion": "1"}})
        spec = (await request.json())["spec"]
        self.reviews[path.rpartition("/")[2]] += 1
        if path.endswith("/tokenreviews"):
            return JSONResponse({"status": self._review_token(spec)}, status_code=201)
        wanted = spec["resourceAttributes"]
        assert (wanted["group"], wanted["resource"]) == ("rlt.dev", "rltrainingjobs")
        ways = {(spec["user"], wanted["verb"], wanted["namespace"], name) for name in ("", wanted.get("name", ""))}
        return JSONResponse({"status": {"allowed": bool(ways & self.rights)}}, status_code=201)

    def _read_usage_record(self, name: str, token: str) -> Response:
        """What the API server answers a token without full rights."""
        if (token, name) not in self.record_rights:
            return JSONResponse({"message": f"{name} is forbidden"}, status_code=403)
        found = [each for each in self.usage_records if each["metadata"]["name"] == name]
        missing = JSONResponse({"message": "not found", "details": {"name": name}}, status_code=404)
        return JSONResponse(found[0]) if found else missing

    def _read_as_person(self, path: str) -> Response:
        """What the API server and the driver answer a token with all rights."""
        if path.endswith("/configmaps"):
            return JSONResponse({"items": self.usage_records, "metadata": {"resourceVersion": "1"}})
        for name, text in DRIVER.items():
            if path.endswith(name):
                return JSONResponse(NO_SERVICE, status_code=503) if self.config_maps else Response(text)
        if path.endswith("/log"):
            return Response("a line of the pod\n")
        if path.endswith("/pods"):
            containers = {"containers": [{"name": "ray-worker"}]}
            pods = [{"metadata": {"name": f"{job['metadata']['name']}-pod"}, "spec": containers} for job in self.jobs]
            return JSONResponse({"items": pods, "metadata": {"resourceVersion": "1"}})
        if path.endswith("/events"):
            return JSONResponse({"items": [], "metadata": {"resourceVersion": "1"}})
        if path.endswith("/rltrainingjobs"):
            return JSONResponse({"items": self.jobs, "metadata": {"resourceVersion": "1"}})
        found = [*self.config_maps, *self.usage_records] if "/configmaps/" in path else self.jobs
        name = path.rpartition("/")[2]
        for each in found:
            if each["metadata"]["name"] == name:
                return JSONResponse(each)
        return JSONResponse({"message": "not found", "details": {"name": name}}, status_code=404)

    def _review_token(self, spec: Json) -> Json:
        user = self.users.get(spec["token"])
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": {"username": user, "groups": ["g"]}, "audiences": self.audiences}


def write_kubeconfig(file: Path, url: str) -> None:
    """Write the kubeconfig with the token of the page's server."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": SERVER_TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(config))


@contextmanager
def serve(simulated: SimulatedApiServer) -> Iterator[str]:
    """Serve it on a free port. Yields its URL."""
    app = Starlette(routes=[Route("/{path:path}", simulated.answer, methods=["GET", "POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
