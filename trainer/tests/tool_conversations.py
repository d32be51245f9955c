"""Conversations with tools and with fixed turns, for tests."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.processes import ForkServer
from rlt_trainer.environments.tool import SandboxedTool, Tool
from rlt_trainer.environments.tool_session import ToolSession
from rlt_trainer.environments.toolbox import open_tools
from rlt_trainer.environments.turn_parser import TurnParser, build_server
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.sandboxes.claim import Claim

TOKENIZER = build_byte_tokenizer()
EOS = 257
HERE = Path(__file__).parent
SERVER = str(HERE / "mcp_server.py")
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=500, stop_token_ids=(EOS,))
STDIO = {"mcp": {"command": [sys.executable, SERVER, "stdio"]}}


def multi_turn(*tools: dict[str, Any], **changes: Any) -> MultiTurn:
    return MultiTurn.model_validate({"tools": list(tools), **changes})


@functools.cache
def start_parsers(format: str = "hermes", reasoning_parser: str | None = None) -> ForkServer:
    """Return a server that all tests of this process share. It ends with the process."""
    names = {"format": format, "reasoning_parser": reasoning_parser, "environment": "calculator"}
    return build_server(MultiTurn.model_validate(names, by_name=True), TOKENIZER)


@contextmanager
def open_parser(given: MultiTurn) -> Iterator[TurnParser]:
    """Yield the parser of a job, for one event loop."""
    parser = TurnParser(given, start_parsers(given.format, given.reasoning_parser))
    try:
        yield parser
    finally:
        parser.close()


def use(given: MultiTurn, run: Callable[[dict[str, Tool]], Awaitable[Any]]) -> Any:
    async def opened() -> Any:
        async with open_tools(given) as tools:
            return await run({name: tool for name, tool in tools.items() if not isinstance(tool, SandboxedTool)})

    return asyncio.run(opened())


def call(given: MultiTurn, tool: str, /, **arguments: Any) -> Any:
    """Return the response to one call of a tool."""
    return use(given, lambda tools: tools[tool].call(arguments))


def write_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Turns:
    """A Sampler with fixed turns."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)
        self.contexts: list[list[int]] = []

    async def sample(self, prompt: Any, *, seed: int, sampling: Sampling, max_tokens: int | None = None) -> Any:
        from rlt_trainer.batches.response import Response

        self.contexts.append(list(prompt))
        tokens = [*next(self._turns).encode(), EOS]
        return Response(tuple(tokens), tuple(-0.5 for _ in tokens))


async def finish(conversation: AbstractAsyncContextManager[tuple[Episode, Claim | None]]) -> Episode:
    """Run a conversation of Converse, and release its sandbox."""
    async with conversation as (episode, _):
        return episode


def talk(given: MultiTurn, *turns: str, prompt: Prompt | None = None) -> tuple[Episode, Turns]:
    sampler = Turns(*turns)
    (made,) = tokenize([Example("q", "", "", "test")], TOKENIZER, tools=[{"function": {"name": "t"}}])

    async def run(tools: dict[str, Tool]) -> Episode:
        with open_parser(given) as parser:
            return await converse(
                sampler,
                ToolSession(tools, given, parser),
                prompt or made,
                seed=1,
                sampling=SAMPLING,
                tokenizer=TOKENIZER,
                limits=ConversationLimits(max_turns=4, max_response_length=2000),
            )

    return use(given, run), sampler
