"""MCP servers in sandbox pods: each conversation has its own server, and the policy can end or change it.

So what fails is a response to the policy, unless the pod is lost. The driver reads from a server only while it has not
answered a request, and no more than MAX_OUTPUT.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rlt_api.blocks.rollout import McpServer
from rlt_trainer.environments.mcp_tools import McpConnection, McpTool
from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import ToolSchema
from rlt_trainer.sandboxes.claim import Claim
from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.sandboxes.sandbox import Sandbox, SandboxError

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

TALK_S = 0.2
"""Time that the server has to print something before other calls of the sandbox have their turn."""
MAX_WRITE = 2**20
"""Maximum number of bytes that are written to a server at a time."""
MAX_LINE = 2**20
"""Maximum number of bytes in a message from a server."""
MAX_OUTPUT = 2**22
MAX_LINES = 1000
"""Maximum number of bytes and of lines that a server may print until it has answered all requests."""


class ServerError(Exception):
    """A server ended, or exceeded a limit."""


class SandboxedMcp:
    """The server of a tool, for all conversations."""

    def __init__(self, server: McpServer, variables: Mapping[str, str], *, name: str, timeout_s: float) -> None:
        """`name` of its program in the pods. `timeout_s` limits one call."""
        self._server = server
        self._variables = variables
        self._name = name
        self._timeout_s = timeout_s
        self._connections: WeakKeyDictionary[Claim, _SandboxedConnection] = WeakKeyDictionary()

    async def list_tools(self, pool: SandboxPool) -> list[SandboxedMcpTool]:
        """Return the tools of a server in a new sandbox. Raises SessionError if it does not answer."""
        try:
            async with Claim(pool, self._timeout_s) as claim:
                tools = await (await self.connect(claim)).list_tools()
        except SandboxError as error:
            raise SessionError(str(error)) from error
        return [SandboxedMcpTool(self, tool.schema) for tool in tools]

    async def connect(self, claim: Claim) -> McpConnection:
        """Return the connection of a conversation. Raises SandboxError."""
        sandbox = await claim.get()
        if claim not in self._connections:
            connection = _SandboxedConnection(self._server, self._variables, self._timeout_s, sandbox, self._name)
            claim.call_at_end(connection.close)
            self._connections[claim] = connection
        return self._connections[claim]


class SandboxedMcpTool:
    """A tool of a server."""

    def __init__(self, server: SandboxedMcp, schema: ToolSchema) -> None:
        self.schema = schema
        self._server = server

    def open_in(self, claim: Claim) -> ConversationMcpTool:
        """See SandboxedTool."""
        return ConversationMcpTool(self._server, self.schema, claim)


class ConversationMcpTool:
    """A tool of a conversation's server. The first call claims the sandbox, and starts the server."""

    def __init__(self, server: SandboxedMcp, schema: ToolSchema, claim: Claim) -> None:
        self.schema = schema
        self._server = server
        self._claim = claim

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool. After a failure of the server, the next call starts another one."""
        try:
            connection = await self._server.connect(self._claim)
        except SandboxError as error:
            raise SessionError(str(error)) from error
        function = self.schema["function"]
        try:
            return await McpTool(connection, function["name"], "", function["parameters"]).call(arguments)
        except SessionError as error:
            try:
                self._claim.check()
            except SandboxError as lost:
                raise SessionError(str(lost)) from error
            return f"error: {error}"


class _SandboxedConnection(McpConnection):
    """A connection to a server in a sandbox."""

    def __init__(
        self, server: McpServer, variables: Mapping[str, str], timeout_s: float, sandbox: Sandbox, name: str
    ) -> None:
        super().__init__(server, variables=variables, api_key=None, timeout_s=timeout_s)
        self._sandbox = sandbox
        self._name = name

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        return open_transport(self._sandbox, self._name, self._server.command or [], self._variables)


@asynccontextmanager
async def open_transport(
    sandbox: Sandbox, name: str, command: list[str], variables: Mapping[str, str]
) -> AsyncIterator[Any]:
    """Start a server, and yield the streams of a client to read and to write. Raises ServerError, SandboxError."""
    import anyio

    if problem := await sandbox.start(name, command, variables):
        raise ServerError(problem)
    to_client, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_client = anyio.create_memory_object_stream[Any](0)
    # The client must not cancel it: a call of the sandbox that is cancelled ends the pod.
    relay = asyncio.create_task(_relay(sandbox, name, from_client, to_client))
    try:
        async with from_server, to_server:
            yield from_server, to_server
    finally:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await asyncio.shield(relay)


async def _relay(
    sandbox: Sandbox,
    name: str,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    to_client: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Relay messages until the client closes its stream. Raises ServerError, SandboxError, errors of the stream."""
    import anyio
    from mcp.types import JSONRPCRequest

    waiting: set[Any] = set()
    unsent = b""
    left = 0
    output = _Output()
    async with from_client, to_client:
        while True:
            messages = []
            try:
                if not waiting and not unsent:
                    output = _Output(output.unfinished)
                    messages.append(await from_client.receive())
                while True:
                    messages.append(from_client.receive_nowait())
            except anyio.WouldBlock:
                pass
            except anyio.EndOfStream:
                return
            for each in messages:
                unsent += each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                if isinstance(each.message, JSONRPCRequest):
                    waiting.add(each.message.id)
            part = unsent[:MAX_WRITE]
            printed, left, problem = await sandbox.talk(name, part, TALK_S if waiting or left else 0.0)
            unsent = unsent[len(part) - left :]
            for message in output.add(printed):
                waiting.discard(getattr(message.message, "id", None))
                await to_client.send(message)
            if problem:
                raise ServerError(problem)


class _Output:
    """What a server prints until it has answered all requests."""

    def __init__(self, unfinished: bytes = b"") -> None:
        self.unfinished = unfinished
        """The begin of a line."""
        self._size = 0
        self._lines = 0

    def add(self, printed: bytes) -> list[SessionMessage]:
        """Return the messages that are complete. Other lines are left out. Raises ServerError above the limits."""
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        *lines, self.unfinished = (self.unfinished + printed).split(b"\n")
        self._size += len(printed)
        self._lines += len(lines)
        if self._size > MAX_OUTPUT or self._lines > MAX_LINES or len(self.unfinished) > MAX_LINE:
            raise ServerError(f"it printed more than {MAX_OUTPUT} bytes or {MAX_LINES} lines, or a line of {MAX_LINE}")
        messages = []
        for line in lines:
            with suppress(ValueError):
                messages.append(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
        return messages
