"""Requests to a Ray head, which may be hostile: real HTTP servers that redirect, flood and hang."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from rlt_core import ray_http
from rlt_core.ray_http import Head, RayTokens, Request, ResponseTooLargeError, Send, UnreachableError
from rlt_core.token_key import TokenKey

HEAD = Head("demo", "sum-head-a", "127.0.0.1")
UID = "uid-of-sum"
TOKENS = TokenKey(b"key")
WITH_TOKEN = replace(HEAD, ray_token=f"sum-ray-token-2-{TOKENS.derive_suffix(UID, 2)}", job_uid=UID)


class Server:
    """A head that belongs to a tenant, and the requests that it received."""

    port = 0

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.tokens: list[str | None] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(f"{request.method} {request.path}")
        self.tokens.append(request.headers.get("X-Ray-Authorization"))
        match request.path:
            case "/redirect":
                raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{self.port}/victim")
            case "/flood":
                return web.Response(text="x" * 200_000)
            case "/log":
                return web.Response(text="".join(f"line {number}\n" for number in range(100_000)))
            case "/compressed":
                zipped = gzip.compress(request.headers["Accept-Encoding"].encode())
                return web.Response(body=zipped, headers={"Content-Encoding": "gzip"})
            case "/encoding":
                return web.Response(text=request.headers["Accept-Encoding"])
            case "/endless":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b"x" * 1_000_000)
        return web.Response(text=f"{request.method} {await request.text()}")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
async def send() -> AsyncIterator[Send]:
    async with aiohttp.ClientSession() as session:
        yield ray_http.to_pod_ip(session, RayTokens(TOKENS))


async def test_a_request_reaches_the_ip_of_the_pod(server: Server, send: Send) -> None:
    assert await send(HEAD, Request("POST", server.port, "/api", {"a": 1})) == (200, 'POST {"a": 1}')


async def test_a_redirect_is_not_followed(server: Server, send: Send) -> None:
    status, _ = await send(HEAD, Request("POST", server.port, "/redirect", {"entrypoint": "secret"}))
    assert status == 307
    assert server.paths == ["POST /redirect"]


async def test_a_response_has_a_maximum_size(server: Server, send: Send) -> None:
    with pytest.raises(ResponseTooLargeError, match="the response to GET /flood exceeds 65536 bytes"):
        await send(HEAD, Request("GET", server.port, "/flood"))


async def test_only_the_end_of_a_log_is_kept(server: Server, send: Send) -> None:
    _, text = await send(HEAD, Request("GET", server.port, "/log", max_bytes=1000, tail=True))
    assert len(text) == 1000
    assert text.endswith("line 99998\nline 99999\n")


async def test_an_endless_response_is_abandoned(server: Server, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_http, "MAX_STREAM_BYTES", 3_000_000)
    with pytest.raises(ResponseTooLargeError, match="exceeds 3000000 bytes"):
        await send(HEAD, Request("GET", server.port, "/endless", max_bytes=1000, tail=True))


async def test_a_compressed_response_is_neither_requested_nor_read(server: Server, send: Send) -> None:
    assert await send(HEAD, Request("GET", server.port, "/encoding")) == (200, "identity")
    with pytest.raises(UnreachableError, match="the response to GET /compressed is compressed: gzip"):
        await send(HEAD, Request("GET", server.port, "/compressed"))


async def test_a_head_that_is_gone_is_unreachable(send: Send) -> None:
    with pytest.raises(UnreachableError):
        await send(HEAD, Request("GET", 1, "/api"))


async def test_a_request_has_the_token_of_the_head_alone(server: Server, send: Send) -> None:
    for head in (WITH_TOKEN, WITH_TOKEN, HEAD):
        await send(head, Request("GET", server.port, "/api"))
    token = f"Bearer {TOKENS.derive_token(UID, 2)}"
    assert server.tokens == [token, token, None]


OTHERS = [
    "sum-ray-token-2",
    f"sum-ray-token-3-{TOKENS.derive_suffix(UID, 2)}",
    f"sum-ray-token-2-{TOKENS.derive_suffix('uid-of-another', 2)}",
    f"sum-ray-token-2-{TokenKey(b'other').derive_suffix(UID, 2)}",
]


@pytest.mark.parametrize("name", OTHERS, ids=["without-suffix", "next-attempt", "other-job", "other-release"])
async def test_a_pod_without_a_secret_of_the_job_gets_no_token(server: Server, send: Send, name: str) -> None:
    with pytest.raises(UnreachableError, match="which is not the job's token"):
        await send(replace(HEAD, ray_token=name, job_uid=UID), Request("GET", server.port, "/api"))
    assert server.paths == []
