"""Tools of MCP servers (modelcontextprotocol.io), over streamable HTTP or stdio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult, TextContent

from rlt_api.blocks.rollout import McpServer
from rlt_trainer.environments.session import SessionError

START_TIMEOUT_S = 60.0
"""Timeout for the connection to a server, and for the start of its program."""


class McpConnection:
    """The connection to a server, in a task of its own: a server that ends does not cancel other tasks.

    All conversations of an engine share it. A call after a lost connection connects again.
    """

    def __init__(
        self, server: McpServer, *, variables: Mapping[str, str], api_key: str | None, timeout_s: float
    ) -> None:
        """`variables` are environment variables of the server's program. `timeout_s` limits one call."""
        self._server = server
        self._variables = dict(variables)
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._owner: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._end = asyncio.Event()
        self._client: Client | None = None
        self.address = server.url or " ".join(server.command or [])
        """The URL or the command, for messages."""

    async def list_tools(self) -> list[McpTool]:
        """Return the server's tools. Raises SessionError if there is no answer."""
        client, tools, cursor = await self._connect(), [], None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while True:
                    page = await client.list_tools(cursor=cursor)
                    tools += [McpTool(self, tool.name, tool.description, tool.input_schema) for tool in page.tools]
                    if not (cursor := page.next_cursor):
                        return tools
        except Exception as error:
            raise SessionError(f"MCP server {self.address}: {describe(error)}") from error

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. Raises MCPError if the server rejects the call, and SessionError if there is no answer."""
        client = await self._connect()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await client.call_tool(name, dict(arguments))
        except MCPError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                raise
            await self.close()
            raise SessionError(f"MCP server {self.address}: {describe(error)}") from error
        except TimeoutError as error:
            raise SessionError(f"MCP server {self.address}: {name} did not end within {self._timeout_s:g} s") from error
        except Exception as error:
            await self.close()
            raise SessionError(f"MCP server {self.address}: {describe(error)}") from error

    async def close(self) -> None:
        """Close the connection."""
        self._end.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def _connect(self) -> Client:
        async with self._lock:
            if self._client is None or self._owner is None or self._owner.done():
                ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
                self._end = asyncio.Event()
                self._owner = asyncio.create_task(self._own(ready, self._end))
                try:
                    self._client = await asyncio.wait_for(ready, START_TIMEOUT_S)
                except Exception as error:
                    self._owner.cancel()
                    raise SessionError(f"MCP server {self.address}: {describe(error)}") from error
            return self._client

    async def _own(self, ready: asyncio.Future[Client], end: asyncio.Event) -> None:
        """Hold the connection until `end`, or until it is lost."""
        try:
            async with Client(self._transport()) as client:
                ready.set_result(client)
                await end.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _transport(self) -> Any:
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
