"""Runs an agent on one prompt, and returns its requests as an episode."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Any, Protocol

from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.agent_server import HOST, AgentEpisode, AgentServer
from rlt_trainer.environments.agent_variables import build_variables
from rlt_trainer.environments.conversation import Episode, require_finite
from rlt_trainer.environments.processes import ForkedProcess
from rlt_trainer.environments.sandboxed_agent import SandboxedAgent
from rlt_trainer.environments.session import SessionError
from rlt_trainer.sandboxes.sandbox import SandboxError

FIX_BASE_URL = "set its base URL to OPENAI_BASE_URL, or to ANTHROPIC_BASE_URL with Anthropic's API"


class Agent(Protocol):
    """An agent of one episode."""

    async def start(self, key: str) -> None:
        """Prepare it, with the key of the episode. Raises SessionError, SandboxError."""
        ...

    async def run(self, prompt: Prompt) -> Any:
        """Run it, and return its reward or None. Raises SessionError, SandboxError."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class FunctionAgent:
    """A user-defined function, which runs in its own process in the head pod: rollout.multiTurn.agent.name."""

    def __init__(self, base_url: str, process: ForkedProcess, sandboxed: SandboxedAgent | None) -> None:
        """`base_url` of the server of this agent."""
        self._base_url = base_url
        self._process = process
        self._sandboxed = sandboxed
        self._variables: dict[str, str] = {}

    async def start(self, key: str) -> None:
        """See Agent."""
        if self._sandboxed:
            await self._sandboxed.open(key)
        given = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        no_proxy = ",".join(filter(None, [given, HOST]))  # no proxy to the server in this pod
        self._variables = build_variables(self._base_url, key, no_proxy=no_proxy)
        await self._process.start()

    async def run(self, prompt: Prompt) -> Any:
        """See Agent."""
        answer = self._sandboxed.answer if self._sandboxed else None
        return await self._process.call({"run": asdict(prompt), "variables": self._variables}, answer)

    def close(self) -> None:
        """See Agent."""
        self._process.close()


async def run_agent(
    server: AgentServer, agent: Agent, prompt: Prompt, episode: AgentEpisode, *, timeout_s: float
) -> Episode:
    """Run an agent. `timeout_s` limits its time without a request. Raises EngineError.

    An agent that fails counts as a failed reward. If one of its requests was rejected because of the limits, the policy
    is the cause: then the episode has no reward, which counts as 0, and the finish reason "length". An agent whose
    sandbox is lost counts as a failed reward in any case.
    """
    transcript = episode.transcript
    lost = None
    failure = None
    reward = None
    try:
        with server.serve(episode) as key:
            await agent.start(key)
            value = await _call(episode, asyncio.create_task(agent.run(prompt)), timeout_s)
        reward = _to_reward(value)
    except SessionError as error:
        failure = str(error)
    except SandboxError as error:
        lost = str(error)
    finally:
        agent.close()
    response = transcript.end()
    if response is None:
        failure = lost or failure or f"the agent had no response to a request: {FIX_BASE_URL}"
        return Episode(Response((), (), finish_reason="abort"), None, failure)
    return Episode(response, reward, lost or (None if transcript.has_reached_limit else failure))


async def _call(episode: AgentEpisode, call: asyncio.Task[Any], timeout_s: float) -> Any:
    try:
        async with episode.activity.limit(timeout_s):
            done, _ = await asyncio.wait([call, episode.failed], return_when=asyncio.FIRST_COMPLETED)
            return await (call if call in done else episode.failed)
    except TimeoutError:
        raise SessionError(f"TimeoutError: the agent made no request for {timeout_s:g} s, and did not end") from None
    finally:
        call.cancel()


def _to_reward(value: Any) -> float | None:
    try:
        return None if value is None else require_finite(float(value))
    except (TypeError, ValueError) as error:
        raise SessionError(f"the agent returned {str(value)[:80]} instead of a reward or None") from error
