"""The tool python in sandbox pods: all programs of a conversation run in one pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import build_schema
from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.sandboxes.sandbox import Sandbox, SandboxError

COMMAND = ("python3", "-u", "-")
"""Runs the program that it reads."""
SCHEMA = build_schema(
    "python",
    "Run a Python program and return what it prints. Each call is a new process. Files remain.",
    {"code": "The program."},
)


class SandboxedPython:
    """The tool, for all conversations."""

    schema = SCHEMA

    def __init__(self, pool: SandboxPool, timeout_s: float) -> None:
        """`timeout_s` limits one program."""
        self._pool = pool
        self._timeout_s = timeout_s

    def open(self) -> ConversationPython:
        """Open the tool for one conversation."""
        return ConversationPython(self._pool, self._timeout_s)

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool. The call has a sandbox for itself."""
        tool = self.open()
        try:
            return await tool.call(arguments)
        finally:
            await tool.close()


class ConversationPython:
    """The tool in one conversation. Its first call claims a sandbox, which the conversation keeps."""

    schema = SCHEMA

    def __init__(self, pool: SandboxPool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._claiming = asyncio.Lock()
        self._claim = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._closed = False

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool."""
        code = arguments.get("code")
        if not isinstance(code, str):
            return 'error: python requires the text argument "code"'
        try:
            sandbox = await self._get_sandbox()
            result = await sandbox.run(COMMAND, stdin=code, timeout_s=self._timeout_s)
        except SandboxError as error:
            raise SessionError(str(error)) from error
        return result.output + (f"error: {result.problem}" if result.problem else "")

    async def close(self) -> None:
        """Release the sandbox. A call that still claims one releases it at once."""
        self._closed = True
        await self._claim.aclose()

    async def _get_sandbox(self) -> Sandbox:
        async with self._claiming:
            if self._sandbox is None and not self._closed:
                self._sandbox = await self._claim.enter_async_context(self._pool.claim())
            if self._sandbox is None or self._closed:
                await self._claim.aclose()
                raise SandboxError("the conversation has ended")
            return self._sandbox
