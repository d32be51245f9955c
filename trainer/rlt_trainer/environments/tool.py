"""A tool: its description in OpenAI's schema, and its call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from rlt_trainer.sandboxes.claim import Claim

ToolSchema = dict[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}, as in requests of OpenAI's API.

parameters is a JSON schema. Source: https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools"""


class Tool(Protocol):
    """One tool."""

    schema: ToolSchema

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """Return the tool's response. An error that the policy caused is a response, too: "error: ...".

        Raises SessionError if the tool failed, through no fault of the policy.
        """
        ...


@runtime_checkable
class SandboxedTool(Protocol):
    """A tool that runs in the sandbox of its conversation."""

    schema: ToolSchema

    def open_in(self, claim: Claim) -> Tool:
        """Return the tool of one conversation."""
        ...


def build_schema(name: str, description: str, parameters: Mapping[str, str]) -> ToolSchema:
    """Build the schema of a tool whose parameters are required text: name -> description."""
    properties = {name: {"type": "string", "description": text} for name, text in parameters.items()}
    required = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": required}}
