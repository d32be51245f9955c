"""600 jobs of one namespace start, and another namespace's job gets the API server at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client

from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.work_queue import Key, Result, WorkQueue

JOBS = 600
REQUESTS = 10
"""Writes of a job, one after the other."""


class ApiServer:
    """Serves one request at a time, in the order of their arrival."""

    def __init__(self) -> None:
        self.served: list[str] = []
        """Namespaces of the requests."""
        self._turn = asyncio.Lock()

    async def respond(self, request: web.Request) -> web.Response:
        async with self._turn:
            await request.read()
            self.served.append(request.match_info["namespace"])
        return web.json_response({})


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[KubernetesApi]:
    app = web.Application()
    app.router.add_route("*", "/api/v1/namespaces/{namespace}/{rest:.*}", server.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    connected = KubernetesApi(client.ApiClient(configuration))
    yield connected
    await connected.close()
    await runner.cleanup()


async def test_a_job_does_not_wait_behind_600_jobs_of_another_namespace(api: KubernetesApi, server: ApiServer) -> None:
    busy = asyncio.Event()
    done = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        for _ in range(REQUESTS):
            await api.create(api_paths.config_maps(key[0]), {"kind": "ConfigMap", "apiVersion": "v1"})
            busy.set()
        if key[0] == "b":
            done.set()
        return Result()

    queue = WorkQueue(reconcile)
    for number in range(JOBS):
        queue.wake(("a", f"job-{number}"))
    queue.start()
    await busy.wait()
    before = len(server.served)
    queue.wake(("b", "job"))
    await done.wait()
    served = len(server.served) - before
    await queue.close()
    alone = REQUESTS
    ahead = api.slots.of_a_namespace + 4  # in the API server's queue, and the rest of a round
    assert served <= alone * (1 + ahead) < JOBS, served
