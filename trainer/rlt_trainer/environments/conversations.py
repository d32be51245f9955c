"""The conversations of a run: each is a coroutine, with a process of its environment or agent, with a server, or with
tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.agent import Agent, FunctionAgent, run_agent
from rlt_trainer.environments.agent_program import ProgramAgent
from rlt_trainer.environments.agent_server import AgentEpisode, AgentServer, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.openenv import OpenEnvServer
from rlt_trainer.environments.processes import EnvironmentProcesses
from rlt_trainer.environments.sandboxed_agent import SandboxedAgent
from rlt_trainer.environments.session import Session
from rlt_trainer.environments.tool import SandboxedTool, Tool
from rlt_trainer.environments.tool_session import ToolSession
from rlt_trainer.environments.toolbox import open_tools
from rlt_trainer.environments.turn_parser import TurnParser, build_server
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.sandboxes.claim import Claim
from rlt_trainer.sandboxes.pool import SandboxPool, Statistics, open_pool
from rlt_trainer.sandboxes.sandbox import SandboxError

MAX_CONVERSATIONS = 256
"""Maximum number of conversations of one batch at the same time, if each has a process for its environment."""


class Converse(Protocol):
    """Runs one conversation, and keeps its sandbox within the context. Raises EngineError."""

    def __call__(
        self, sampler: Sampler, prompt: Prompt, *, seed: int, sampling: Sampling
    ) -> AbstractAsyncContextManager[tuple[Episode, Claim | None]]: ...


class Conversations:
    """Runs conversations (rollout.multiTurn) in the event loop of the sampler.

    The first batch opens the tools, or the server for agents. All batches share them.
    """

    def __init__(self, multi_turn: MultiTurn, data: Data, tokenizer: PreTrainedTokenizerBase) -> None:
        self._multi_turn = multi_turn
        self._max_prompt_length = data.max_prompt_length
        self._max_response_length = data.max_response_length
        self._chat_template = data.chat_template
        self._tokenizer = tokenizer
        self._processes = EnvironmentProcesses(multi_turn)
        self._openenv = OpenEnvServer(multi_turn) if multi_turn.openenv else None
        self._parser_server = build_server(multi_turn, tokenizer)
        self._parser = TurnParser(multi_turn, self._parser_server)
        self._opening = asyncio.Lock()
        self._opened = AsyncExitStack()
        self._tools: Mapping[str, Tool | SandboxedTool] | None = None
        self._server: AgentServer | None = None
        self._pool: SandboxPool | None = None
        self._batches: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Converse]:
        """Yield the function that runs the conversations of a batch."""
        slots = self._choose_slots()
        timeout_s = self._multi_turn.timeout_seconds

        @asynccontextmanager
        async def run_one(
            sampler: Sampler, prompt: Prompt, *, seed: int, sampling: Sampling
        ) -> AsyncIterator[tuple[Episode, Claim | None]]:
            async with Claim(self._pool, timeout_s) if self._pool else nullcontext() as claim:
                async with slots:
                    run = self._run_agent if self._multi_turn.agent else self._converse
                    episode = await run(sampler, prompt, seed, sampling, claim)
                yield episode, claim

        batch = asyncio.current_task()
        assert batch is not None
        self._batches.add(batch)
        try:
            await self._open()
            yield run_one
        finally:
            self._batches.discard(batch)

    async def close(self) -> None:
        """Cancel the batches in progress. Close the tools and the server, and end the processes."""
        for batch in self._batches:
            batch.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)
        await self._opened.aclose()
        self._processes.close()
        self._parser.close()
        self._parser_server.close()

    def take_statistics(self) -> Statistics | None:
        """Return the statistics of sandboxes since the last call. None without sandboxes."""
        return self._pool.take_statistics() if self._pool else None

    def _choose_slots(self) -> AbstractAsyncContextManager[None]:
        """Return what limits the conversations of a batch at the same time."""
        if self._openenv is not None:
            return self._openenv.slots
        return nullcontext() if self._multi_turn.tools else asyncio.Semaphore(MAX_CONVERSATIONS)

    def _open_session(self, prompt: Prompt, claim: Claim | None) -> Session:
        if self._openenv is not None:
            return self._openenv.open_session(prompt)
        if self._tools:
            return ToolSession(self._tools, self._multi_turn, self._parser, claim)
        return self._processes.open_session(prompt)

    async def _open(self) -> None:
        async with self._opening:
            self._pool = self._pool or open_pool(self._multi_turn)
            if self._multi_turn.agent is not None:
                self._server = self._server or await self._opened.enter_async_context(open_agent_server())
            elif self._tools is None:
                self._tools = await self._opened.enter_async_context(open_tools(self._multi_turn, self._pool))

    async def _converse(
        self, sampler: Sampler, prompt: Prompt, seed: int, sampling: Sampling, claim: Claim | None
    ) -> Episode:
        episode = await converse(
            sampler,
            self._open_session(prompt, claim),
            prompt,
            seed=seed,
            sampling=sampling,
            tokenizer=self._tokenizer,
            limits=ConversationLimits(self._multi_turn.max_turns, self._max_response_length),
            chat_template=self._chat_template,
        )
        has_no_reward = self._openenv is not None and episode.reward is None  # all actions were rejected, or none given
        return replace(episode, reward=0.0) if has_no_reward else episode

    async def _run_agent(
        self, sampler: Sampler, prompt: Prompt, seed: int, sampling: Sampling, claim: Claim | None
    ) -> Episode:
        assert self._server is not None
        limits = AgentLimits(self._multi_turn.max_turns, self._max_prompt_length, self._max_response_length)
        episode = AgentEpisode(
            sampler,
            AgentTranscript(self._tokenizer, self._chat_template, limits),
            seed=seed,
            sampling=sampling,
            tokenizer=self._tokenizer,
            parser=self._parser,
        )
        timeout_s = self._multi_turn.timeout_seconds
        try:
            sandbox = await claim.get() if claim else None
        except SandboxError as error:
            return Episode(Response((), (), finish_reason="abort"), None, str(error))
        sandboxed = SandboxedAgent(sandbox, self._server, episode, limits, timeout_s) if sandbox else None
        agent = self._open_agent(self._server, sandboxed)
        return await run_agent(self._server, agent, prompt, episode, timeout_s=timeout_s)

    def _open_agent(self, server: AgentServer, sandboxed: SandboxedAgent | None) -> Agent:
        given = self._multi_turn.agent
        assert given is not None
        if given.command is None:
            return FunctionAgent(server.base_url, self._processes.fork(), sandboxed)
        assert sandboxed is not None, "a rule requires the sandbox"
        return ProgramAgent(given, sandboxed)
