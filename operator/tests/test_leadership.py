"""Writes need the leadership: before they are sent, and until their response."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client

from rlt_core.ray_http import Head, Request
from rlt_operator.leadership import FencedApi, Leadership, NotLeaderError, fence


class Server:
    """An HTTP server that counts requests by method and answers after `release` is set."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.received.append(request.method)
        self.arrived.set()
        await self.release.wait()
        return web.json_response({})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    served.release.set()
    await runner.cleanup()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[FencedApi]:
    connected = FencedApi(client.ApiClient(client.Configuration(host=server.address)), leadership=Leadership())
    yield connected
    await connected.close()


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_write_needs_the_leadership(api: FencedApi, server: Server, method: str) -> None:
    with pytest.raises(NotLeaderError):
        await api.send(method, "/x", body={})
    api.leadership.extend(now() - 1)
    with pytest.raises(NotLeaderError):
        await api.send(method, "/x", body={})
    assert server.received == []
    api.leadership.extend(math.inf)
    assert await api.send(method, "/x", body={}) == (200, "{}")
    assert server.received == [method]


async def test_a_standby_reads(api: FencedApi) -> None:
    assert await api.get("/x") == {}


async def test_all_kinds_of_writes_are_fenced(api: FencedApi, server: Server) -> None:
    for write in (
        api.apply("/x", {}),
        api.create("/x", {}),
        api.merge("/x", {}),
        api.replace("/x", {}),
        api.dry_run("/x", {}),
        api.delete("/x", uid="u"),
    ):
        with pytest.raises(NotLeaderError):
            await write
    assert server.received == []


async def test_a_write_in_flight_is_cancelled_when_the_leadership_ends(api: FencedApi, server: Server) -> None:
    server.release.clear()
    api.leadership.extend(math.inf)
    write = asyncio.create_task(api.apply("/x", {}))
    await server.arrived.wait()
    api.leadership.end()
    with pytest.raises(NotLeaderError):
        await write


async def test_a_write_in_flight_is_cancelled_when_the_leadership_expires(api: FencedApi, server: Server) -> None:
    server.release.clear()
    api.leadership.extend(math.inf)
    write = asyncio.create_task(api.apply("/x", {}))
    await server.arrived.wait()
    api.leadership.extend(now() + 0.01)
    with pytest.raises(NotLeaderError):
        await write


async def test_a_renewal_extends_the_time_of_a_write_in_flight(api: FencedApi, server: Server) -> None:
    server.release.clear()
    api.leadership.extend(now() + 3600)
    write = asyncio.create_task(api.apply("/x", {}))
    await server.arrived.wait()
    (held,) = api.leadership._writes
    api.leadership.extend(now() + 7200)
    assert held.when() == api.leadership.until
    server.release.set()
    await write
    assert not api.leadership._writes


async def test_the_expiry_precedes_a_wake_up_of_the_same_moment() -> None:
    """As when a stopped process resumes: the socket is ready and the time is over. The write is not sent."""
    leadership = Leadership()
    ready = asyncio.get_running_loop().create_future()
    sent = []

    async def write() -> None:
        async with leadership.hold():
            await ready
            sent.append("request")

    leadership.extend(now() + 0.01)
    writing = asyncio.create_task(write())
    await asyncio.sleep(0)
    while leadership.valid:  # the process runs nothing else meanwhile, as if it were stopped
        pass
    asyncio.get_running_loop().call_soon(ready.set_result, None)
    with pytest.raises(NotLeaderError):
        await writing
    assert sent == []


async def test_a_request_to_ray_is_fenced_unless_it_reads() -> None:
    sent: list[str] = []

    async def send(_: Head, request: Request) -> tuple[int, str]:
        sent.append(request.method)
        return 200, ""

    leadership = Leadership()
    fenced = fence(send, leadership)
    head = Head("ns", "sum-head", "10.0.0.1")
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(NotLeaderError):
            await fenced(head, Request(method, 8265, "/api/jobs/"))
    assert await fenced(head, Request("GET", 8265, "/api/jobs/")) == (200, "")
    leadership.extend(math.inf)
    await fenced(head, Request("POST", 8265, "/api/jobs/"))
    assert sent == ["GET", "POST"]


LEADER = """
import asyncio, sys
from kubernetes.aio import client
from rlt_operator.leadership import FencedApi, Leadership, NotLeaderError

async def main():
    api = FencedApi(client.ApiClient(client.Configuration(host=sys.argv[1])), leadership=Leadership())
    await api.get("/x")
    api.leadership.extend(asyncio.get_running_loop().time() + 1)
    print("leads", flush=True)
    sys.stdin.readline()
    try:
        await api.apply("/x", {})
        print("written", flush=True)
    except NotLeaderError:
        print("not written", flush=True)
    await api.close()

asyncio.run(main())
"""
"""A process that leads for 1 s, and writes once when it reads a line."""


async def test_a_process_that_was_stopped_writes_nothing_when_it_resumes(server: Server) -> None:
    """No renewal ends the process here: the fence alone prevents the write."""
    pipe = asyncio.subprocess.PIPE
    leader = await asyncio.create_subprocess_exec(sys.executable, "-c", LEADER, server.address, stdin=pipe, stdout=pipe)
    assert leader.stdin
    assert leader.stdout
    assert await leader.stdout.readline() == b"leads\n"
    os.kill(leader.pid, signal.SIGSTOP)
    await asyncio.sleep(1)  # its leadership expires
    leader.stdin.write(b"write\n")
    os.kill(leader.pid, signal.SIGCONT)
    assert await leader.stdout.readline() == b"not written\n"
    await leader.communicate()  # also closes its input, which else fails after the event loop has ended
    assert leader.returncode == 0
    assert server.received == ["GET"]
