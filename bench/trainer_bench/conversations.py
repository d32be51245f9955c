"""One turn of 32 conversations whose environment or tool answers after 0.1 s. The turns of the policy are fixed."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench_report import Row

from rlt_api.blocks.data import Data
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example, Prompt
from rlt_trainer.environments.conversations import Conversations
from rlt_trainer.rollout.engine import Sampling
from trainer_bench.waiting import TOOL_S

CONVERSATIONS = 32
TURNS = 4
MAX_S = 0.4
EOS = 257
CALL = f"<tool_call>{json.dumps({'name': 'wait', 'arguments': {'text': 'x'}})}</tool_call>"


def measure() -> Row:
    """Measure an environment, which has a process for each conversation."""
    return describe("an environment", {"environment": "trainer_bench.waiting:Waiting"})


def measure_tool() -> Row:
    """Measure a function, which has a few processes for all conversations."""
    return describe("a function", {"tools": [{"function": {"name": "trainer_bench.waiting:wait"}}]})


def describe(kind: str, multi_turn: dict[str, Any]) -> Row:
    """Build the row."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    seconds = asyncio.run(run(MultiTurn.model_validate({**multi_turn, "maxTurns": TURNS + 1})))
    turn = statistics.median(seconds)
    what = f"a turn of {CONVERSATIONS} conversations with {kind} of {TOOL_S} s"
    return Row(what, f"under {MAX_S} s", f"{turn:.3f} s", turn < MAX_S, {"seconds": seconds})


async def run(multi_turn: MultiTurn) -> list[float]:
    """Return the seconds of each turn but the first, which starts the processes."""
    tokenizer = build_byte_tokenizer()
    policy = Policy()
    prompts = tokenize([Example("q", "", "", "bench")] * CONVERSATIONS, tokenizer, tools=[])
    conversations = Conversations(multi_turn, Data(max_response_length=10_000), tokenizer)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=1000, stop_token_ids=(EOS,))
    async with conversations.open() as converse:

        async def run_one(seed: int, prompt: Prompt) -> None:
            async with converse(policy, prompt, seed=seed, sampling=sampling):
                pass

        await asyncio.gather(*(run_one(seed, prompt) for seed, prompt in enumerate(prompts)))
    await conversations.close()
    return [end - start for start, end in pairwise(policy.times[1:])]


class Policy:
    """A Sampler that answers all conversations at once, when all of them have asked."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._barrier = asyncio.Barrier(CONVERSATIONS)

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """As in Sampler."""
        if await self._barrier.wait() == 0:
            self.times.append(time.perf_counter())
        tokens = [*CALL.encode(), EOS]
        return Response(tuple(tokens), (-0.5,) * len(tokens))


if __name__ == "__main__":
    print(measure(), measure_tool(), sep="\n")
