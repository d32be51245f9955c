"""The parts of a turn: reasoning, content and calls, which vLLM's parsers find in separate processes."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.environments.parser_server import TIMEOUT_S
from rlt_trainer.environments.processes import ForkedProcess, ForkServer, ForkServerError
from rlt_trainer.environments.session import SampledTurn, SessionError
from rlt_trainer.environments.tool_calls import ParsedTurn, read_turn
from rlt_trainer.rollout.engine import EngineError

START_TIMEOUT_S = 300.0
"""Timeout for the server to import vLLM."""
MAX_PROCESSES = 4
"""Maximum number of turns that are parsed at the same time."""
FIELD = "rollout.multiTurn."
READ_PROMPTS = "hf"
"""The parser that reads the tokens before a turn."""

BROKEN = read_turn({"content": "", "reasoning": "", "calls": [], "is_broken": True, "reasoning_tokens": 0})
"""The parts of a turn that is not parsed."""

_log = logging.getLogger(__name__)


class TurnParser:
    """Parses turns with the parsers multiTurn.format and multiTurn.reasoningParser.

    The first turn starts a server, which imports vLLM once: about 8 s. A turn that takes longer than TIMEOUT_S, or ends
    its process, ends no other one. It counts as an invalid call.
    """

    def __init__(self, multi_turn: MultiTurn, server: ForkServer) -> None:
        """`server`: from build_server."""
        self._multi_turn = multi_turn
        self._server = server
        self._starting = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_PROCESSES)
        self._idle: list[ForkedProcess] = []

    async def parse(
        self, turn: SampledTurn, tools: Sequence[Mapping[str, Any]], *, stop: Sequence[str] = ()
    ) -> ParsedTurn:
        """Return the parts of a turn, which may call `tools`. The first of the texts `stop` ends the turn before it.

        Raises EngineError if the server does not start.
        """
        names = (self._multi_turn.format, self._multi_turn.reasoning_parser)
        if not tools and self._multi_turn.reasoning_parser is None:
            return ParsedTurn(turn.text)
        call = {
            "token_ids": list(turn.token_ids),
            "tools": list(tools),
            "is_ended": turn.is_ended,
            "stop": list(stop),
            "prompt": list(turn.prompt) if READ_PROMPTS in names else None,
        }
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    found = await process.call(call)
            except (SessionError, TimeoutError) as error:
                process.close()
                _log.warning("a turn of %d tokens ended the process that parsed it: %r", len(turn.token_ids), error)
                return BROKEN
            except asyncio.CancelledError:
                process.close()
                raise
            self._idle.append(process)
        return read_turn(found) if found else BROKEN

    def close(self) -> None:
        """End the processes, but not the server."""
        for process in self._idle:
            process.close()
        self._idle.clear()

    async def _start(self) -> ForkedProcess:
        try:
            async with self._starting:
                process = await asyncio.to_thread(self._server.fork)
            await process.start()
        except (ForkServerError, SessionError) as error:
            raise EngineError(_describe(error)) from error
        return process


def build_server(multi_turn: MultiTurn, tokenizer: PreTrainedTokenizerBase) -> ForkServer:
    """Return the server of the parsers, which starts with its first fork."""
    given = {"format": multi_turn.format, "reasoning_parser": multi_turn.reasoning_parser, "tokenizer": tokenizer}
    module = "rlt_trainer.environments.parser_server"
    return ForkServer(module, given=lambda: pickle.dumps(given), start_timeout_s=START_TIMEOUT_S)


def check_parsers(multi_turn: MultiTurn, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError if a parser cannot be used with the tokenizer."""
    server = build_server(multi_turn, tokenizer)
    try:
        server.fork().close()
    except ForkServerError as error:
        raise ValueError(_describe(error)) from None
    finally:
        server.close()


def _describe(error: Exception) -> str:
    """Return the error of a server: the server names field and fix, but not if it was killed."""
    if str(error).startswith(FIELD):
        return str(error)
    return f"{FIELD}format: the process of its parser: {error}. Raise cluster.head.resources.memory."
