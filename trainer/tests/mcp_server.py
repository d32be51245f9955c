"""An MCP server of the tests: `python mcp_server.py stdio`, or `python mcp_server.py http PORT TOKEN`."""

from __future__ import annotations

import os
import sys
import time

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("test")


@server.tool()
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    if a == 13:
        raise ToolError("13 is unlucky")
    return a * b


@server.tool()
def hang() -> str:
    """Take an hour."""
    time.sleep(3600)
    return ""


@server.tool()
def leave() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def read_variable(name: str) -> str:
    """Return an environment variable."""
    return os.environ.get(name, "missing")


class Authorized:
    """Rejects requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != f"Bearer {self._token}":
            response: Response = PlainTextResponse("no token", status_code=401)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def main() -> None:
    """Run the server."""
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    app: Starlette = server.streamable_http_app()
    uvicorn.run(Authorized(app, sys.argv[3]), port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
