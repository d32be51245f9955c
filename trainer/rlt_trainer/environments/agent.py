"""Runs an agent on one prompt, and returns its requests as an episode."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Any

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


async def run_agent(
    server: AgentServer,
    process: ForkedProcess,
    prompt: Prompt,
    episode: AgentEpisode,
    *,
    timeout_s: float,
    sandboxed: SandboxedAgent | None = None,
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
            if sandboxed:
                await sandboxed.open(key)
            await process.start()
            given = {"run": asdict(prompt), "variables": _build_variables(server, key)}
            answer = sandboxed.answer if sandboxed else None
            value = await _call(episode, asyncio.create_task(process.call(given, answer)), timeout_s)
        reward = _to_reward(value)
    except SessionError as error:
        failure = str(error)
    except SandboxError as error:
        lost = str(error)
    finally:
        process.close()
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


def _build_variables(server: AgentServer, key: str) -> dict[str, str]:
    """Return the variables of an agent in this pod, without a proxy to the server."""
    given = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
    return build_variables(server.base_url, key, no_proxy=",".join(filter(None, [given, HOST])))


def _to_reward(value: Any) -> float | None:
    try:
        return None if value is None else require_finite(float(value))
    except (TypeError, ValueError) as error:
        raise SessionError(f"the agent returned {str(value)[:80]} instead of a reward or None") from error
