"""How much of the prompts vLLM finds in its prefix cache: in the group of a prompt, and in turns of a conversation."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench_report import Row
from in_process import Pair, build_pair_config

from rlt_trainer.batches.response import Response
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Messages, Prompt
from rlt_trainer.environments.conversation import ConversationLimits, converse
from rlt_trainer.environments.session import Reply, SampledTurn
from rlt_trainer.rollout.engine import Sampling
from rlt_trainer.rollout.sampler import Sampler
from rlt_trainer.telemetry.engine_counters import QUERIES, EngineCounters, compute_counter_metrics
from trainer_bench.configs import MODEL

PROMPTS = 8
N = 8
"""Responses to a prompt."""
PROMPT_TOKENS = 500
TURN_TOKENS = 64
TURNS = 4
OBSERVATION = "x" * 40
BLOCK = 32
"""Tokens in a block: vLLM finds whole blocks."""
MIN_SHARE = 0.95
PROBES = [Prompt(number, tuple(range(50 + number, 60 + number)), "", "", "", "") for number in range(8)]
TEXTS = [[50 + (number + place) % 150 for place in range(PROMPT_TOKENS)] for number in range(PROMPTS)]
LIMITS = ConversationLimits(TURNS, TURNS * (TURN_TOKENS + len(OBSERVATION)))


@dataclass
class Recorder:
    """The Sampler of an engine. Counts the tokens of whole blocks that an earlier request has."""

    sampler: Sampler
    found: int = 0
    blocks: set[tuple[int, ...]] = field(default_factory=set)
    """All tokens up to the end of each block."""

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """As in Sampler, but a turn that has TURN_TOKENS has ended."""
        tokens = tuple(prompt)
        needed = [tokens[:end] for end in range(BLOCK, len(tokens), BLOCK)]  # vLLM computes the last token again
        self.found += BLOCK * sum(block in self.blocks for block in needed)
        self.blocks.update(needed)
        response = await self.sampler.sample(prompt, seed=seed, sampling=sampling, max_tokens=TURN_TOKENS)
        tokens += tuple(response.token_ids)
        self.blocks.update(tokens[:end] for end in range(BLOCK, len(tokens), BLOCK))
        return replace(response, finish_reason="stop")


class Observer:
    """A Session that answers each turn with the same text."""

    async def reset(self) -> Messages:
        """As in Session."""
        return []

    async def step(self, turn: SampledTurn) -> Reply:
        """As in Session."""
        return Reply([{"role": "user", "content": OBSERVATION}])

    async def close(self) -> None:
        """As in Session."""


@dataclass(frozen=True)
class Share:
    """Shares of the prompts' tokens: found in the cache, and in blocks that an earlier request has."""

    found: float
    possible: float

    def __str__(self) -> str:
        return f"{self.found / self.possible:.1%} ({self.found:.1%} of all tokens)"


def measure() -> Row:
    """Measure both with one engine, after a weight sync each, which drops the cache."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_pair_config(
            Path(folder),
            model={"fromSeed": MODEL},
            data={
                "preset": "arithmetic",
                "maxPromptLength": PROMPT_TOKENS,
                "maxResponseLength": LIMITS.max_response_length,
            },
            training={"totalSteps": 1, "ppoMiniBatchSize": 128},
            rollout={"engine": "vllm", "maxNumSeqs": PROMPTS * N, "engineKwargs": {"block_size": BLOCK}},
        )
        pair = Pair(config, PROBES)
        group = measure_share(pair, generate_groups)
        turns = measure_share(pair, hold_conversations)
        pair.close()
    return Row(
        f"prompts in vLLM's prefix cache, of the tokens in whole blocks of {BLOCK} that an earlier request has",
        f"at least {MIN_SHARE:.0%}",
        f"groups of {N}: {group}; conversations of {TURNS} turns: {turns}",
        min(each.found / each.possible for each in (group, turns)) >= MIN_SHARE,
        {"group": vars(group), "turns": vars(turns)},
    )


def measure_share(pair: Pair, generate: Callable[[Sampler, Sampling], Awaitable[object]]) -> Share:
    """Measure what `generate` does after a weight sync."""
    pair.sync()
    counters = EngineCounters()
    pair.take(counters)
    recorder = Recorder(pair.engines.router)

    async def run() -> None:
        await generate(recorder, pair.engines.sampling)

    pair.engines.loop.submit(run()).result()
    added = pair.take(counters)
    tokens = added[QUERIES]
    return Share(compute_counter_metrics([added])["rollout/prefix_cache_hit_rate"], recorder.found / tokens)


async def generate_groups(sampler: Sampler, sampling: Sampling) -> None:
    """Generate the groups of all prompts."""
    await asyncio.gather(
        *(
            sampler.sample(text, seed=number * N + row, sampling=sampling)
            for number, text in enumerate(TEXTS)
            for row in range(N)
        )
    )


async def hold_conversations(sampler: Sampler, sampling: Sampling) -> None:
    """Hold a conversation about each prompt."""
    tokenizer = build_byte_tokenizer()
    await asyncio.gather(
        *(
            converse(
                sampler,
                Observer(),
                Prompt(number, tuple(text), "", "", "", ""),
                seed=number,
                sampling=sampling,
                tokenizer=tokenizer,
                limits=LIMITS,
            )
            for number, text in enumerate(TEXTS)
        )
    )


if __name__ == "__main__":
    print(measure().measured)
