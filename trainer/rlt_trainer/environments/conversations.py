"""The conversations of a run: each is a coroutine, with a process of its environment or agent, or with tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from transformers import PreTrainedTokenizerBase

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.agent import run_agent
from rlt_trainer.environments.agent_server import AgentEpisode, AgentServer, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.processes import EnvironmentProcesses
from rlt_trainer.environments.tool import Tool
from rlt_trainer.environments.tool_session import ToolSession
from rlt_trainer.environments.toolbox import open_tools
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.sampler import Sampler

MAX_CONVERSATIONS = 256
"""Maximum number of conversations of one batch at the same time, if each has a process for its environment."""


class Conversations:
    """Runs conversations (rollout.multiTurn) in the event loop of the sampler."""

    def __init__(self, multi_turn: MultiTurn, data: Data, tokenizer: PreTrainedTokenizerBase) -> None:
        self._multi_turn = multi_turn
        self._limits = ConversationLimits(multi_turn.max_turns, data.max_response_length)
        self._max_prompt_length = data.max_prompt_length
        self._chat_template = data.chat_template
        self._tokenizer = tokenizer
        self._processes: EnvironmentProcesses | None = None

    async def run(
        self, sampler: Sampler, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling
    ) -> list[Episode]:
        """Run one conversation on each prompt, all at the same time. Raises EngineError."""
        if self._multi_turn.agent is not None:
            return await self._run_agents(sampler, prompts, seeds, sampling)
        slots = asyncio.Semaphore(MAX_CONVERSATIONS)

        async def run_one(tools: Mapping[str, Tool], prompt: Prompt, seed: int) -> Episode:
            async with nullcontext() if tools else slots:
                return await converse(
                    sampler,
                    ToolSession(tools, self._multi_turn) if tools else self._open_processes().open_session(prompt),
                    prompt,
                    seed=seed,
                    sampling=sampling,
                    tokenizer=self._tokenizer,
                    limits=self._limits,
                    chat_template=self._chat_template,
                )

        async with open_tools(self._multi_turn) as tools:
            pairs = zip(prompts, seeds, strict=True)
            return await asyncio.gather(*(run_one(tools, prompt, seed) for prompt, seed in pairs))

    async def _run_agents(
        self, sampler: Sampler, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling
    ) -> list[Episode]:
        slots = asyncio.Semaphore(MAX_CONVERSATIONS)
        limits = AgentLimits(self._multi_turn.max_turns, self._max_prompt_length, self._limits.max_response_length)

        async def run_one(server: AgentServer, prompt: Prompt, seed: int) -> Episode:
            async with slots:
                episode = AgentEpisode(
                    sampler,
                    AgentTranscript(self._tokenizer, self._chat_template, limits),
                    seed=seed,
                    sampling=sampling,
                    tokenizer=self._tokenizer,
                    format=self._multi_turn.format,
                )
                process, timeout_s = self._open_processes().fork(), self._multi_turn.timeout_seconds
                return await run_agent(server, process, prompt, episode, timeout_s=timeout_s)

        async with open_agent_server() as server:
            pairs = zip(prompts, seeds, strict=True)
            return await asyncio.gather(*(run_one(server, prompt, seed) for prompt, seed in pairs))

    def close(self) -> None:
        """End the processes."""
        if self._processes is not None:
            self._processes.close()

    def _open_processes(self) -> EnvironmentProcesses:
        self._processes = self._processes or EnvironmentProcesses(self._multi_turn)
        return self._processes
