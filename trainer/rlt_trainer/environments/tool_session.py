"""A conversation with tools: each turn of the policy calls some of them, or ends the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.prompt import Messages
from rlt_trainer.environments.session import Reply, SampledTurn
from rlt_trainer.environments.tool import SandboxedTool, Tool
from rlt_trainer.environments.tool_calls import InvalidCall, ToolCall, number_call
from rlt_trainer.environments.turn_parser import TurnParser
from rlt_trainer.sandboxes.claim import Claim

OMITTED = "\n... {} characters are left out ...\n"


class ToolSession:
    """One conversation. Its tools keep no state of it, except in its sandbox."""

    def __init__(
        self,
        tools: Mapping[str, Tool | SandboxedTool],
        multi_turn: MultiTurn,
        parser: TurnParser,
        claim: Claim | None = None,
    ) -> None:
        """`tools`: name -> tool. `claim`: the sandbox for those that need one."""
        self._parser = parser
        self._tools = {name: _open(tool, claim) for name, tool in tools.items()}
        self._multi_turn = multi_turn

    async def reset(self) -> Messages:
        """See Session."""
        return []

    async def step(self, turn: SampledTurn) -> Reply:
        """See Session. There is one message for each call, with the role tool."""
        calls = (await self._parser.parse(turn, [tool.schema for tool in self._tools.values()])).calls
        if not calls:
            return Reply([], is_done=True)
        limit = self._multi_turn.max_parallel_calls
        results = await asyncio.gather(*(self._call(call) for call in calls[:limit]))
        skipped = [f"error: the call was skipped: a turn has at most {limit} calls"] * len(calls[limit:])
        messages = [
            {
                "role": "tool",
                "name": call.name if isinstance(call, ToolCall) else "invalid",
                "tool_call_id": (isinstance(call, ToolCall) and call.id) or number_call(number),
                "content": shorten(result, self._multi_turn.max_tool_response_length),
            }
            for number, (call, result) in enumerate(zip(calls, [*results, *skipped], strict=True))
        ]
        return Reply(messages)

    async def close(self) -> None:
        """See Session."""

    async def _call(self, call: ToolCall | InvalidCall) -> str:
        if isinstance(call, InvalidCall):
            return f"error: {call.message}"
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: there is no tool {call.name[:80]!r}; the tools are {', '.join(self._tools)}"
        return await tool.call(call.arguments)


def _open(tool: Tool | SandboxedTool, claim: Claim | None) -> Tool:
    if not isinstance(tool, SandboxedTool):
        return tool
    assert claim is not None, "a tool in a sandbox needs the sandbox"
    return tool.open_in(claim)


def shorten(text: str, length: int) -> str:
    """Leave out the middle of a text that has more than `length` characters."""
    if len(text) <= length:
        return text
    begin = (length + 1) // 2
    return text[:begin] + OMITTED.format(len(text) - length) + text[len(text) - (length - begin) :]
