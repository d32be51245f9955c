"""Tools of MCP servers (modelcontextprotocol.io), over streamable HTTP or stdio.

The package mcp is optional, and its import is slow: the functions that use it import it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rlt_api.blocks.rollout import McpServer
from rlt_trainer.environments.session import SessionError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

START_TIMEOUT_S = 60.0
"""Timeout for the connection to a server, for the start of its program, and for the list of its tools."""
CLOSE_TIMEOUT_S = 10.0
"""Time that connections have to end."""

T = TypeVar("T")


@dataclass
class _Link:
    """One connection, which a separate task holds: a server that ends does not cancel other tasks."""

    owner: asyncio.Task[None]
    end: asyncio.Event
    client: Client
    calls: int = 0
    """Number of calls in progress."""


class McpConnection:
    """The connection to a server. All conversations of a run share it.

    After a call without an answer, later calls connect again. Calls in progress keep their connection.
    """

    def __init__(
        self, server: McpServer, *, variables: Mapping[str, str], api_key: str | None, timeout_s: float
    ) -> None:
        """`variables` are environment variables of the server's program. `timeout_s` limits one call."""
        self._server = server
        self._variables = dict(variables)
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._link: _Link | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._address = server.url or " ".join(server.command or [])

    async def list_tools(self) -> list[McpTool]:
        """Return the server's tools. Raises SessionError if it does not answer."""

        async def list_pages(client: Client) -> list[McpTool]:
            tools: list[McpTool] = []
            cursor = None
            while True:
                page = await client.list_tools(cursor=cursor)
                tools += [McpTool(self, tool.name, tool.description, tool.input_schema) for tool in page.tools]
                if not (cursor := page.next_cursor):
                    return tools

        return await self._use(list_pages, "tools/list", START_TIMEOUT_S)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. Raises MCPError if the server rejects the call, and SessionError if it does not answer."""
        return await self._use(lambda client: client.call_tool(name, dict(arguments)), name, self._timeout_s)

    async def close(self) -> None:
        """Close all connections."""
        if self._link is not None:
            self._link.end.set()
        if self._owners:
            _, late = await asyncio.wait(self._owners, timeout=CLOSE_TIMEOUT_S)
            for owner in late:
                owner.cancel()

    async def _use(self, request: Callable[[Client], Awaitable[T]], name: str, timeout_s: float) -> T:
        """Send a request, and wait for its answer."""
        from mcp import MCPError
        from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND

        link = await self._connect()
        link.calls += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await request(link.client)
        except TimeoutError as error:
            self._drop(link)
            raise SessionError(f"MCP server {self._address}: {name} did not end within {timeout_s:g} s") from error
        except Exception as error:
            if isinstance(error, MCPError) and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                raise
            self._drop(link)
            raise SessionError(f"MCP server {self._address}: {describe(error)}") from error
        finally:
            link.calls -= 1
            if link is not self._link and not link.calls:
                link.end.set()

    def _drop(self, link: _Link) -> None:
        if link is self._link:
            self._link = None

    async def _connect(self) -> _Link:
        async with self._lock:
            if self._link is None:
                end = asyncio.Event()
                ready = asyncio.get_running_loop().create_future()
                owner = asyncio.create_task(self._own(ready, end))
                self._owners.add(owner)
                owner.add_done_callback(self._owners.discard)
                try:
                    self._link = _Link(owner, end, await asyncio.wait_for(ready, START_TIMEOUT_S))
                except Exception as error:
                    owner.cancel()
                    raise SessionError(f"MCP server {self._address}: {describe(error)}") from error
            return self._link

    async def _own(self, ready: asyncio.Future[Client], end: asyncio.Event) -> None:
        """Hold a connection until `end`, or until it is lost."""
        from mcp import Client

        try:
            async with Client(self._transport()) as client:
                ready.set_result(client)
                await end.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _transport(self) -> Any:
        from mcp import StdioServerParameters
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        if self._server.url is None:
            command, *arguments = self._server.command or []
            return StdioServerParameters(command=command, args=arguments, env=self._variables)
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else None
        return streamable_http_client(self._server.url, http_client=create_mcp_http_client(headers))


class McpTool:
    """A tool of a server."""

    def __init__(
        self, connection: McpConnection, name: str, description: str | None, parameters: dict[str, Any]
    ) -> None:
        self._connection = connection
        self._name = name
        function = {"name": name, "description": description or "", "parameters": parameters}
        self.schema = {"type": "function", "function": function}

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool. The response is the text of the result: images and other content are left out."""
        from mcp import MCPError
        from mcp.types import TextContent

        try:
            result = await self._connection.call(self._name, arguments)
        except MCPError as error:
            return f"error: {error.message}"
        text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
        return f"error: {text}" if result.is_error else text


def describe(error: BaseException) -> str:
    """Return the type and message of an error, of the first one of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
