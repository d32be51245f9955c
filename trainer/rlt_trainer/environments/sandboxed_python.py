"""The tool python in sandbox pods: all programs of a conversation run in one pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_trainer.environments.session import SessionError
from rlt_trainer.environments.tool import build_schema
from rlt_trainer.sandboxes.claim import Claim
from rlt_trainer.sandboxes.sandbox import SandboxError

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

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` limits one program."""
        self._timeout_s = timeout_s

    def open_in(self, claim: Claim) -> ConversationPython:
        """See SandboxedTool."""
        return ConversationPython(claim, self._timeout_s)


class ConversationPython:
    """The tool in one conversation. Its first call claims the sandbox."""

    schema = SCHEMA

    def __init__(self, claim: Claim, timeout_s: float) -> None:
        self._claim = claim
        self._timeout_s = timeout_s

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """See Tool."""
        code = arguments.get("code")
        if not isinstance(code, str):
            return 'error: python requires the text argument "code"'
        try:
            sandbox = await self._claim.get()
            result = await sandbox.run(COMMAND, stdin=code, timeout_s=self._timeout_s)
        except SandboxError as error:
            raise SessionError(str(error)) from error
        return result.output + (f"error: {result.problem}" if result.problem else "")
