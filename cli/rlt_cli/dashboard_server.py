"""A server on the loopback interface that shows a job's Ray dashboard, with the token that the head requires.

Ray's job API runs any command, so that only GET is forwarded, and only for pages of this server: other sites that are
open in the same browser cannot use the token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from aiohttp import web

from rlt.connection import Connection
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError
from rlt_core.names import DASHBOARD_PORT, head_service

HOST = "127.0.0.1"
HOST_NAMES = (HOST, "localhost")
UNAUTHORIZED = (401, 403)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_dashboard(connection: Connection, name: str, port: int) -> AsyncIterator[str]:
    """Yield the URL of a job's dashboard. `port` 0 selects a free one. Raises OSError if the port is in use."""
    app = web.Application(middlewares=[_reject_other_sites])
    app.router.add_get("/{path:.*}", _build_handler(connection, name), allow_head=False)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def find_rejection(host: str, path: str, headers: Mapping[str, str]) -> str | None:
    """Return why a request is rejected: it is for another host or from a page of another site, or leaves the dashboard.

    `path`: as the client has sent it.
    """
    if ".." in unquote(path).split("/"):
        return "The path leaves the dashboard."
    if urlsplit(f"//{host}").hostname not in HOST_NAMES:
        return f"The host {host} is not this machine: open http://{HOST}."
    navigates = headers.get("Sec-Fetch-Mode") == "navigate"
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not navigates:
        return "Pages of other sites cannot read the dashboard."
    return None


@web.middleware
async def _reject_other_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    if rejection := find_rejection(request.host, request.raw_path.partition("?")[0], request.headers):
        raise web.HTTPForbidden(text=rejection)
    return await handler(request)


def _build_handler(connection: Connection, name: str) -> Handler:
    path = api_paths.service_proxy(connection.namespace, head_service(name), DASHBOARD_PORT)
    token: dict[str, str] = {}

    async def forward(request: web.Request) -> web.StreamResponse:
        nonlocal token
        try:
            token = token or await connection.get_token_headers(name)
            status, kind, body = await connection.api.get_content(f"{path}{request.raw_path}", token)
            if status in UNAUTHORIZED:  # another attempt has another token
                token = await connection.get_token_headers(name)
                status, kind, body = await connection.api.get_content(f"{path}{request.raw_path}", token)
        except ApiError as error:
            raise web.HTTPBadGateway(text=str(error)) from error
        return web.Response(status=status, body=body, headers={"Content-Type": kind} if kind else {})

    return forward
