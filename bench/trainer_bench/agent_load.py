"""The policy's server under the load of 1,000 agents, with an engine that answers after a fixed time.

The agents are in another process, on the same cores. Each sends TURNS requests, the next one with the response and a
further message. The server's own time of a request is what its agent waits for, without the time of the engine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np
from bench_report import Row

from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.environments.agent_server import AgentEpisode, open_agent_server
from rlt_trainer.environments.agent_transcript import AgentLimits, AgentTranscript
from rlt_trainer.environments.turn_parser import TurnParser, build_server
from rlt_trainer.rollout.engine import Sampling

SESSIONS = 1000
TURNS = 2
ENGINE_S = 60.0
"""Time of the engine for a turn. SESSIONS / ENGINE_S agents start in a second."""
LONG_BYTES = 48_000
SHORT_BYTES = 1_000
MAX_P99_S = 0.1
MAX_CPU_S = 0.001
EOS = 257
ANSWER = (*b"I look it up.", EOS)
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Load:
    """What was measured."""

    own_s: Sequence[float]
    """The server's own time of each request."""
    errors: int
    """Requests that failed, or had another response."""
    cpu_s: float
    """CPU time of the server's process for a request."""

    def percentile(self, share: float) -> float:
        """Return a percentile of the server's own time, in seconds."""
        return float(np.percentile(self.own_s, share))


def measure() -> Row:
    """Measure long prompts."""
    load = asyncio.run(put_load(LONG_BYTES))
    p50 = load.percentile(50)
    p99 = load.percentile(99)
    return Row(
        f"the policy's server, {SESSIONS:,} agents with prompts of {LONG_BYTES // 1000} kB: its own time at p99",
        f"under {MAX_P99_S * 1000:.0f} ms, no error",
        f"{p99 * 1000:.0f} ms, p50 {p50 * 1000:.1f} ms, {load.errors} errors of {len(load.own_s):,} requests, "
        f"{load.cpu_s * 1000:.1f} ms of CPU a request ({SESSIONS / ENGINE_S:.0f} new agents a second)",
        p99 < MAX_P99_S and load.errors == 0,
        {"own_s": load.own_s, "errors": load.errors, "cpu_s": load.cpu_s},
    )


def measure_cpu() -> Row:
    """Measure short prompts."""
    load = asyncio.run(put_load(SHORT_BYTES))
    return Row(
        f"the policy's server, CPU for a request of {SHORT_BYTES // 1000} kB with a tool, {SESSIONS:,} agents",
        f"at most {MAX_CPU_S * 1000:.0f} ms",
        f"{load.cpu_s * 1000:.2f} ms, {load.errors} errors of {len(load.own_s):,} requests, "
        f"own time {load.percentile(50) * 1000:.1f} ms at p50",
        load.cpu_s <= MAX_CPU_S and load.errors == 0,
        {"own_s": load.own_s, "errors": load.errors, "cpu_s": load.cpu_s},
    )


async def put_load(size: int) -> Load:
    """Serve all agents. `size`: bytes of each first message."""
    tokenizer = build_byte_tokenizer()
    given = MultiTurn.model_validate({"agent": {"name": "none:none"}})
    limits = AgentLimits(TURNS, 2 * LONG_BYTES, LONG_BYTES)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=LONG_BYTES, stop_token_ids=(EOS,))
    with closing(build_server(given, tokenizer)) as server, ExitStack() as episodes:
        parser = TurnParser(given, server)
        async with open_agent_server() as agents:

            def open_episode(number: int) -> str:
                transcript = AgentTranscript(tokenizer, None, limits)
                options: dict[str, Any] = {"sampling": sampling, "tokenizer": tokenizer, "parser": parser}
                episode = AgentEpisode(Engine(), transcript, seed=number, **options)
                return episodes.enter_context(agents.serve(episode))

            keys = [open_episode(number) for number in range(SESSIONS)]
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as process:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(process, run_agents, agents.base_url, [open_episode(-1)], size, 0.0)
                start = time.process_time()
                own = await loop.run_in_executor(process, run_agents, agents.base_url, keys, size, ENGINE_S)
                cpu_s = time.process_time() - start
        parser.close()
    found = [seconds for seconds in own if seconds is not None]
    return Load(found, len(own) - len(found), cpu_s / len(own))


class Engine:
    """A Sampler that answers after ENGINE_S."""

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """As in Sampler."""
        await asyncio.sleep(ENGINE_S)
        return Response(ANSWER, (-0.5,) * len(ANSWER), finish_reason="stop")


def run_agents(url: str, keys: Sequence[str], size: int, spread_s: float) -> list[float | None]:
    """Run an agent for each key. Return the server's own time of each request; None after an error.

    The agents start one after the other in `spread_s`.
    """

    async def run() -> list[float | None]:
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as client:
            starts = np.linspace(0, spread_s, len(keys), endpoint=False)
            runs = (run_agent(client, key, size, start) for key, start in zip(keys, starts, strict=True))
            return [seconds for own in await asyncio.gather(*runs) for seconds in own]

    return asyncio.run(run())


async def run_agent(client: aiohttp.ClientSession, key: str, size: int, start_s: float) -> list[float | None]:
    """Send the requests of one agent."""
    await asyncio.sleep(start_s)
    text = f"{key} is a word. ".ljust(size, "?")
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    own = list[float | None]()
    for _ in range(TURNS):
        body = {"model": "policy", "messages": messages, "tools": [TOOL]}
        begin = time.perf_counter()
        async with client.post("/v1/chat/completions", json=body, headers={"x-api-key": key}) as response:
            content = await response.json()
        seconds = time.perf_counter() - begin - ENGINE_S
        own.append(seconds if response.status == 200 else None)
        if response.status == 200:
            messages += [content["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    return own


if __name__ == "__main__":
    print(measure_cpu(), measure(), sep="\n")
