"""A weight sync to vLLM while responses are in progress: their KV cache is kept, or computed again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from in_process import Pair

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.runs import build_config, build_sequences
from gpu_check.settings import Settings
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.engine_counters import HITS, PREEMPTIONS, EngineCounters

Cache = Literal["recompute", "keep"]
PROBES = [Prompt(number, tuple(range(50 + number, 66 + number)), "", "", "", "") for number in range(4)]


def run(settings: Settings) -> Iterator[Figure]:
    """Run both, with Qwen3-0.6B's shape on a GPU."""
    model = write_model(build_shape(settings.choose("0.6B", "tiny")), settings.folder / "model", settings.device)
    for cache in ("recompute", "keep"):
        yield from sync_beside_responses(settings, model, cache)


def sync_beside_responses(settings: Settings, model: str, cache: Cache) -> Iterator[Figure]:
    """Generate responses without a sync, and again with a step and a sync at the beginning."""
    prompt_length, length, requests, batch = settings.choose((1024, 256, 256, 64), (40, 24, 32, 8))
    on_gpu = {"freeCacheEngine": False, "gpuMemoryUtilization": 0.4, "enforceEager": False}
    config = build_config(
        settings.device,
        settings.folder / cache,
        model,
        data={"maxPromptLength": prompt_length, "maxResponseLength": length},
        rollout={
            "engine": "vllm",
            "maxNumSeqs": batch,
            "staleness": {"kvCache": cache},
            **settings.choose(on_gpu, {"kvCacheSpace": 1, "engineKwargs": {"block_size": 32}}),
        },
    )
    prompts = build_sequences(rows=2 * requests, length=prompt_length + 4).responses.tolist()
    examples = build_sequences(rows=4, length=16)
    pair = Pair(config, PROBES)
    counters = EngineCounters()
    try:
        pair.sync()
        long = replace(pair.engines.sampling, stop_token_ids=())
        start = time.perf_counter()
        pair.generate(prompts[:requests], list(range(requests)), long)
        yield Figure(f"kvCache {cache}: generation without a sync", time.perf_counter() - start, "s")
        pair.take(counters)
        start = time.perf_counter()
        responses = pair.start(prompts[requests:], list(range(requests)), long)
        pair.rank.supervised_step(examples, int(examples.response_mask.sum()))
        pair.sync()
        found = responses.result(120)
        yield Figure(f"kvCache {cache}: generation with a step and a sync in it", time.perf_counter() - start, "s")
        preempted = int(pair.take(counters)[PREEMPTIONS])
        yield Figure(
            f"kvCache {cache}: requests whose cache is computed again",
            preempted,
            passed=preempted == 0 if cache == "keep" else preempted > 0,
            note="0" if cache == "keep" else "more than 0",
        )
        complete = sum(each.finish_reason in ("stop", "length") for each in found)
        yield Figure(f"kvCache {cache}: complete responses", complete, passed=complete == requests)
        pairs = zip(found, pair.policy_log_probs(prompts[requests:], found), strict=True)
        difference = torch.cat([(torch.tensor(each.log_probs) - row).abs() for each, row in pairs]).mean()
        yield Figure(f"kvCache {cache}: mean difference from the new policy", float(difference), "nats")
        yield from look_for_earlier_values(pair, counters, cache, prompts[-1])
    finally:
        pair.close()


def look_for_earlier_values(pair: Pair, counters: EngineCounters, cache: Cache, prompt: list[int]) -> Iterator[Figure]:
    """Send a prompt with values in the prefix cache, after another sync: none of them counts for the new weights."""
    pair.sync()
    pair.take(counters)
    hits = []
    for seed in (1, 2):
        pair.generate([prompt], [seed])
        hits.append(int(pair.take(counters)[HITS]))
    yield Figure(f"kvCache {cache}: tokens of a prompt found from earlier weights", hits[0], passed=hits[0] == 0)
    yield Figure(f"kvCache {cache}: tokens found from the same weights", hits[1], passed=hits[1] > 0)
