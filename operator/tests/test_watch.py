"""kopf runs beside the operator's own tasks and signal handlers, follows the selected namespaces, and starts again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kopf
import observed as o
import pytest
import yaml
from aiohttp import web

from rlt_api.schema.crd import GROUP, KIND, PLURAL, RUNTIME_PLURAL, VERSION
from rlt_core.job import Manifest
from rlt_operator import watch
from rlt_operator.watch import NoDiffBase, build_settings, use_service_address

RESOURCES = {PLURAL: (KIND, True), RUNTIME_PLURAL: ("RLRuntime", False)}
PREFIX = f"/apis/{GROUP}/{VERSION}"


def write_kubeconfig(folder: Path, port: int) -> Path:
    file = folder / "kubeconfig"
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {"token": "none"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def job(namespace: str, version: int) -> Manifest:
    manifest = o.manifest()
    metadata = {**manifest["metadata"], "namespace": namespace, "uid": namespace, "resourceVersion": str(version)}
    # What kopf acts on in other operators, and what it cannot parse.
    foreign = {"kopf.zalando.org/last-handled-configuration": "{"}
    return {
        **manifest,
        "metadata": {**metadata, "annotations": foreign, "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"]},
    }


class Server:
    """The part of an API server that kopf needs, and what it has received."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Manifest]] = defaultdict(list)
        self.changes: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        self.watches: Counter[str] = Counter()
        self.changed = asyncio.Event()
        """Set when a watch starts or ends."""
        self.status = 200
        """Of the lists of jobs."""
        self.silent = False
        """Whether watches of RLRuntimes get no answer. The next list of jobs then waits for such a watch, and fails."""
        self.held = asyncio.Event()
        """Set when such a watch is open."""
        self.writes: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")
        if PLURAL in request.path or RUNTIME_PLURAL in request.path:
            return await (self.watch(request) if "watch" in request.query else self.list(request))
        return web.json_response(self.discover(request.path))

    def discover(self, path: str) -> Any:
        version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
        group = {"name": GROUP, "versions": [version], "preferredVersion": version}
        common: dict[str, Any] = {"singularName": "", "verbs": ["list", "watch", "patch"]}
        kinds = [{"name": name, "kind": kind, "namespaced": is_, **common} for name, (kind, is_) in RESOURCES.items()]
        return {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [{"name": "namespaces", "kind": "Namespace", "namespaced": False, **common}]},
            "/apis": {"groups": [group]},
            PREFIX: {"resources": kinds},
        }[path]

    async def list(self, request: web.Request) -> web.Response:
        if self.silent and PLURAL in request.path:
            await self.held.wait()
            self.silent = False
            return web.json_response({}, status=404)
        items = self.jobs[request.path.split("/")[5]] if "/namespaces/" in request.path else []
        found = {"kind": f"{KIND}List", "metadata": {"resourceVersion": "10"}, "items": items}
        return web.json_response(found, status=self.status if PLURAL in request.path else 200)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        if self.silent and RUNTIME_PLURAL in request.path:
            self.held.set()
            await asyncio.Event().wait()
        response = web.StreamResponse()
        await response.prepare(request)
        self.count(request.path, 1)
        try:
            while True:
                change = await self.changes[request.path].get()
                await response.write(json.dumps(change).encode() + b"\n")
        finally:
            self.count(request.path, -1)

    def count(self, path: str, added: int) -> None:
        self.watches[path] += added
        self.changed.set()

    async def await_watches(self, *namespaces: str) -> None:
        """Wait until kopf watches the jobs of these namespaces only."""
        wanted = {f"{PREFIX}/namespaces/{each}/{PLURAL}" for each in namespaces}
        async with asyncio.timeout(20):
            while {path for path, count in self.watches.items() if count and PLURAL in path} != wanted:
                self.changed.clear()
                await self.changed.wait()


class Running:
    """kopf against the server."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[str | None, str, str]] = asyncio.Queue()
        """Change, namespace and resourceVersion of each event on a job."""
        self.kopf = watch.KopfWatch()
        self.loop = asyncio.get_running_loop()
        self.runtimes = asyncio.Event()
        self.task = asyncio.create_task(self.kopf.run(self.receive, self.runtimes.set))

    def receive(self, change: str | None, manifest: Manifest) -> None:
        assert asyncio.get_running_loop() is self.loop
        metadata = manifest["metadata"]
        self.events.put_nowait((change, metadata["namespace"], metadata["resourceVersion"]))

    async def next(self) -> tuple[str | None, str, str]:
        return await asyncio.wait_for(self.events.get(), 20)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    started = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", started.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, runner.addresses[0][1])))
    yield started
    await runner.cleanup()


@pytest.fixture
async def running(server: Server) -> AsyncIterator[Running]:
    started = Running()
    yield started
    started.task.cancel()
    await asyncio.wait([started.task])


async def test_events_reach_the_loop_of_the_operator_and_kopf_writes_nothing(running: Running, server: Server) -> None:
    server.jobs["a"] = [job("a", 1)]
    running.kopf.select("a", True)
    assert await running.next() == (None, "a", "1")
    await server.await_watches("a")
    for change, version in (("MODIFIED", 11), ("DELETED", 12)):
        server.changes[f"{PREFIX}/namespaces/a/{PLURAL}"].put_nowait({"type": change, "object": job("a", version)})
        assert await running.next() == (change, "a", str(version))
    runtime = {"metadata": {"name": "x", "uid": "x", "resourceVersion": "13"}}
    server.changes[f"{PREFIX}/{RUNTIME_PLURAL}"].put_nowait({"type": "ADDED", "object": runtime})
    await asyncio.wait_for(running.runtimes.wait(), 20)
    assert server.writes == []


async def test_namespaces_come_and_go(running: Running, server: Server) -> None:
    server.jobs["b"] = [job("b", 1)]
    running.kopf.select("a", True)
    await server.await_watches("a")
    running.kopf.select("b", True)
    assert await running.next() == (None, "b", "1")
    await server.await_watches("a", "b")
    running.kopf.select("a", False)
    await server.await_watches("b")
    running.kopf.select("b", False)
    await server.await_watches()
    running.kopf.select("b", True)
    assert await running.next() == (None, "b", "1")


async def test_kopf_is_started_again_when_it_ends(
    running: Running, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when the API server does not have the kind."""
    monkeypatch.setattr(watch, "MAX_BACKOFF_S", 0.01)
    server.status = 404
    server.jobs["a"] = [job("a", 1)]
    running.kopf.select("a", True)
    ended = asyncio.Event()
    monkeypatch.setattr(watch.log, "warning", lambda *_: ended.set())
    await asyncio.wait_for(ended.wait(), 20)
    server.status = 200
    assert await running.next() == (None, "a", "1")


async def test_kopf_is_started_again_while_another_watch_gets_no_answer(running: Running, server: Server) -> None:
    """kopf ends when the list of jobs fails. Its other watcher must end too."""
    server.silent = True
    server.jobs["a"] = [job("a", 1)]
    running.kopf.select("a", True)
    assert await running.next() == (None, "a", "1")


async def test_kopf_leaves_signals_and_other_tasks_to_the_operator(running: Running, server: Server) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running.kopf.select("a", True)
    await server.await_watches("a")
    other = asyncio.create_task(asyncio.Event().wait())
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(stop.wait(), 20)
    assert not running.task.done()
    running.task.cancel()
    await asyncio.wait([running.task], timeout=20)
    assert running.task.cancelled()
    assert not other.done()
    other.cancel()


def test_no_user_knows_the_finalizer_that_kopf_removes() -> None:
    first = build_settings().persistence
    second = build_settings().persistence
    assert isinstance(first.diffbase_storage, NoDiffBase)
    assert first.finalizer != second.finalizer


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_kopf_connects_to_the_address_of_the_service(host: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name kubernetes.default.svc, which kopf uses, needs a DNS service."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = use_service_address(kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="a"))
    assert (found.server, found.token) == (server, "a")
