"""The CPU of one watch event: through kopf, and through the reflector that follows the other kinds.

    python bench/watch_events.py [--jobs 2000]

A server in another process has the jobs, and then changes each of them once. Every job has its next event seconds after
the last one in a cluster too, so that kopf starts a task for each. The figures are CPU time of this process, and the
ratios belong to one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from rlt_api.schema.crd import GROUP, KIND, PLURAL, VERSION
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths, client
from rlt_operator.cache.job_store import JobStore
from rlt_operator.cache.reflector import Reflector
from rlt_operator.cache.store import Store
from rlt_operator.watch import KopfWatch

SIZES = (2_000, 12_000)
"""Bytes of a job: without a status, and of one that runs, with managedFields."""
IDLE_S = 1.0
"""The tasks of kopf end after half of this time without an event."""


def describe_resource(group_version: str, name: str, kind: str) -> Manifest:
    """What the API server answers about the resources of a group."""
    resource = {"name": name, "singularName": "", "kind": kind, "namespaced": True, "verbs": ["list", "watch"]}
    return {"groupVersion": group_version, "resources": [resource]}


def build_job(number: int, version: int, size: int) -> Manifest:
    """A job of about `size` bytes of JSON, as fields of some dozen characters."""
    metadata = {"namespace": "demo", "name": f"job-{number}", "uid": f"uid-{number}", "resourceVersion": str(version)}
    status = {f"field{each}": f"{version} {each}".ljust(24, "x") for each in range((size - 200) // 40)}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": {}, "status": status}


def serve(jobs: int, size: int, ready: Connection) -> None:
    """Serve the jobs, and change each of them once after a request of /go."""
    go = asyncio.Event()
    listed = json.dumps(
        {"kind": f"{KIND}List", "metadata": {"resourceVersion": "10"}}
        | {"items": [build_job(number, 1, size) for number in range(jobs)]}
    )
    changes = "".join(
        json.dumps({"type": "MODIFIED", "object": build_job(number, 100 + number, size)}) + "\n"
        for number in range(jobs)
    ).encode()

    async def list_or_watch(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(text=listed, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        await go.wait()
        await response.write(changes)
        await asyncio.Event().wait()
        return response

    async def start(_: web.Request) -> web.Response:
        go.set()
        return web.Response()

    async def discover(request: web.Request) -> web.Response:
        version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
        group = {"name": GROUP, "versions": [version], "preferredVersion": version}
        answers: dict[str, Any] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": describe_resource("v1", "namespaces", "Namespace"),
            "/apis": {"groups": [group]},
            f"/apis/{GROUP}": group,
            f"/apis/{GROUP}/{VERSION}": describe_resource(f"{GROUP}/{VERSION}", PLURAL, KIND),
        }
        return web.json_response(answers.get(request.path, {}), status=200 if request.path in answers else 404)

    async def run() -> None:
        app = web.Application()
        app.router.add_get(api_paths.jobs(None), list_or_watch)
        app.router.add_get("/go", start)
        app.router.add_get("/{path:.*}", discover)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


class Events:
    """Counts the changes of a store, and wakes the test when all jobs have changed."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.count = 0
        self.reached = asyncio.Event()

    def note(self) -> None:
        self.count += 1
        if self.count % self.jobs == 0:
            self.reached.set()

    async def wait(self) -> None:
        await self.reached.wait()
        self.reached.clear()


async def follow_with_kopf(api: client.KubernetesApi, store: Store[Any], events: Events) -> None:
    def receive(change: str | None, job: Manifest) -> None:
        if store.put(job):
            events.note()

    watch = KopfWatch()
    watch.select(None, True)
    await watch.run(receive, lambda: None)


async def follow_with_reflector(api: client.KubernetesApi, store: Store[Any], events: Events) -> None:
    async def find_path() -> str:
        return api_paths.jobs(None)

    await Reflector("jobs", store, find_path, lambda name, job: events.note()).run(api)


async def measure(follow: Callable[..., Any], jobs: int) -> float:
    """CPU milliseconds of one event."""
    api = await client.connect("watch-events")
    events = Events(jobs)
    following = asyncio.create_task(follow(api, JobStore(), events))
    await events.wait()
    await asyncio.sleep(IDLE_S)
    before = time.process_time()
    await api.send("GET", "/go")
    await events.wait()
    await asyncio.sleep(IDLE_S)
    used = time.process_time() - before
    following.cancel()
    await asyncio.wait([following])
    await api.close()
    return used / jobs * 1000


def run_one(follow: Callable[..., Any], jobs: int, size: int) -> float:
    """Measure against a new server."""
    mine, others = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(jobs, size, others), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{mine.recv()}"}}],
            "users": [{"name": "test", "user": {"token": "none"}}],
        }
        file = Path(folder) / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        os.environ["KUBECONFIG"] = str(file)
        try:
            return asyncio.run(measure(follow, jobs))
        finally:
            server.kill()
            server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    jobs = parser.parse_args().jobs
    print("| bytes of a job | kopf, ms | reflector, ms | ratio |\n|---|---|---|---|")
    for size in SIZES:
        kopf = run_one(follow_with_kopf, jobs, size)
        reflector = run_one(follow_with_reflector, jobs, size)
        print(f"| {len(json.dumps(build_job(1, 1, size)))} | {kopf:.2f} | {reflector:.2f} | {kopf / reflector:.1f} |")


if __name__ == "__main__":
    main()
