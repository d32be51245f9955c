"""Calls of tools in the text of a turn, in the forms that models are trained to write."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

Format = Literal["hermes", "llama3_json"]

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class InvalidCall:
    """A text in the form of a call that cannot be parsed."""

    message: str
    """What is invalid, for the policy."""


def parse_calls(text: str, format: Format) -> list[ToolCall | InvalidCall]:
    """Return the calls in a turn, in order.

    hermes: each <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes 2 Pro, Qwen 2.5 and 3). llama3_json:
    the whole turn is {"name": ..., "parameters": {...}} (Llama 3.1). The end-of-text token is not part of the text.
    """
    if format == "hermes":
        return [_parse_call(call, "arguments") for call in _HERMES.findall(text)]
    stripped = text.strip().removeprefix("<|python_tag|>")
    return [_parse_call(stripped, "parameters")] if stripped.startswith("{") else []


def _parse_call(text: str, key: str) -> ToolCall | InvalidCall:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        return InvalidCall(f"the call is not JSON: {error}")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return InvalidCall('the call is not an object with "name"')
    arguments = call.get(key, {})
    if isinstance(arguments, str):  # as in OpenAI's API
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return InvalidCall(f"the {key} of {call['name']} are not JSON: {error}")
    if not isinstance(arguments, dict):
        return InvalidCall(f"the {key} of {call['name']} are not an object")
    return ToolCall(call["name"], arguments)
