"""Runs an agent on one prompt, and returns its requests as an episode."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Any

from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.agent_server import HOST, AgentEpisode, AgentServer
from rlt_trainer.environments.conversation import Episode, require_finite
from rlt_trainer.environments.policy_request import MODEL
from rlt_trainer.environments.processes import ForkedProcess
from rlt_trainer.environments.session import SessionError

FIX_BASE_URL = "set its base URL to OPENAI_BASE_URL, or to ANTHROPIC_BASE_URL with Anthropic's API"


async def run_agent(
    server: AgentServer, process: ForkedProcess, prompt: Prompt, episode: AgentEpisode, *, timeout_s: float
) -> Episode:
    """Run an agent. `timeout_s` limits its time without a request. Raises EngineError.

    An agent that fails counts as a failed reward. If one of its requests was rejected because of the limits, the policy
    is the cause: then the episode has no reward, which counts as 0, and the finish reason "length".
    """
    transcript = episode.transcript
    failure = None
    reward = None
    try:
        with server.serve(episode) as key:
            await process.start()
            value = await _call(process, episode, prompt, build_variables(server.base_url, key), timeout_s)
        reward = _to_reward(value)
    except SessionError as error:
        failure = str(error)
    finally:
        process.close()
    response = transcript.end()
    if response is None:
        failure = failure or f"the agent had no response to a request: {FIX_BASE_URL}"
        return Episode(Response((), (), finish_reason="abort"), None, failure)
    return Episode(response, reward, None if transcript.has_reached_limit else failure)


async def _call(
    process: ForkedProcess, episode: AgentEpisode, prompt: Prompt, variables: dict[str, str], timeout_s: float
) -> Any:
    call = asyncio.create_task(process.call({"run": asdict(prompt), "variables": variables}))
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(timeout_s) as limit:

            def reschedule(is_busy: bool) -> None:
                if not limit.expired():
                    limit.reschedule(None if is_busy else now() + timeout_s)

            episode.on_activity = reschedule
            done, _ = await asyncio.wait([call, episode.failed], return_when=asyncio.FIRST_COMPLETED)
            return await (call if call in done else episode.failed)
    except TimeoutError:
        raise SessionError(f"TimeoutError: the agent made no request for {timeout_s:g} s, and did not end") from None
    finally:
        episode.on_activity = lambda is_busy: None
        call.cancel()


def build_variables(base_url: str, key: str) -> dict[str, str]:
    """Return the environment variables of an agent: the ones that clients of OpenAI and Anthropic read, and no proxy to
    the server."""
    without_proxy = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST]))
    return {
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_DEFAULT_MODEL": MODEL,  # openai-agents
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,  # side requests of Claude Code
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }


def _to_reward(value: Any) -> float | None:
    try:
        return None if value is None else require_finite(float(value))
    except (TypeError, ValueError) as error:
        raise SessionError(f"the agent returned {str(value)[:80]} instead of a reward or None") from error
