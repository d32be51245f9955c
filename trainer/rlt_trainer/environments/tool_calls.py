"""Calls of tools in a turn, as a parser of vLLM finds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    """The identifier of the call, if the turn has one, as with Kimi K2."""


@dataclass(frozen=True)
class InvalidCall:
    """A text in the form of a call that cannot be parsed."""

    message: str
    """What is invalid, for the policy."""


@dataclass(frozen=True)
class ParsedTurn:
    """A turn of the policy without the tokens that mark its parts."""

    content: str
    """The text beside reasoning and calls."""
    reasoning: str = ""
    calls: Sequence[ToolCall | InvalidCall] = ()
    """In their order."""
    reasoning_tokens: int = 0
    """Tokens of the reasoning, 0 if the parser does not count them."""

    @property
    def valid_calls(self) -> list[ToolCall]:
        """The calls, or none if one of them is invalid."""
        valid = [call for call in self.calls if isinstance(call, ToolCall)]
        return valid if len(valid) == len(self.calls) else []


def read_turn(found: Mapping[str, Any]) -> ParsedTurn:
    """Return a turn from the result of VllmParser.parse."""
    calls = [_read_call(**call) for call in found["calls"]]
    broken = [InvalidCall("the call cannot be parsed")] if found["is_broken"] else []
    return ParsedTurn(found["content"], found["reasoning"], [*calls, *broken], found["reasoning_tokens"])


def _read_call(name: Any, arguments: Any, id: str | None) -> ToolCall | InvalidCall:
    if not isinstance(name, str):
        return InvalidCall("the name of the call is not text")
    try:
        given = json.loads(arguments or "{}")
        if isinstance(given, str):  # as in OpenAI's API
            given = json.loads(given)
    except (ValueError, RecursionError) as error:
        return InvalidCall(f"the arguments of {name[:80]} are not JSON: {error}")
    if not isinstance(given, dict):
        return InvalidCall(f"the arguments of {name[:80]} are not an object")
    return ToolCall(name, given, id)


def number_call(number: int) -> str:
    """Return the identifier of a call without one."""
    return f"call{number:05d}"  # Mistral's templates require nine characters
