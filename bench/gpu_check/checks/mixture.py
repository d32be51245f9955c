"""128 experts in vLLM: a weight sync in stacks against a copy of the same bytes, and the replay of vLLM's routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import torch
from in_process import Pair

from gpu_check.figures import Figure
from gpu_check.models import build_mixture_config, write_model
from gpu_check.runs import build_config
from gpu_check.settings import Settings
from rlt_trainer.batches.ragged import split_rows
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.policy.weight_files import to_file_format
from rlt_trainer.rollout.expert_stacks import iterate_experts
from rlt_trainer.rollout.weight_sums import sum_weights

ROUNDS = 6
"""Syncs of each kind, verified and not."""
MAX_MS = 0.03
"""Of a sync, for each weight of the files."""
MAX_RATIO = 2.0
"""A sync against a copy of the same bytes."""
PROBES = [Prompt(number, tuple(range(50 + number, 66 + number)), "", "", "", "") for number in range(4)]


def run(settings: Settings) -> Iterator[Figure]:
    """Sync in turns, compare the weights, and compute log-probabilities with the engine's routes and without.

    vLLM's CPU build reports no routes: a rehearsal replays the policy's routes.
    """
    experts, width, layers = settings.choose((128, 512, 4), (8, 128, 2))
    shape = build_mixture_config(experts=experts, width=width, layers=layers)
    config = build_config(
        settings.device,
        settings.folder / "run",
        write_model(shape, settings.folder / "model", settings.device),
        algorithm={"routerReplay": settings.choose("R3", "R2")},
        data={"maxResponseLength": settings.choose(256, 8)},
        rollout={
            "engine": "vllm",
            "maxNumSeqs": settings.choose(64, 8),
            "verifyWeightsFreq": 2,
            **settings.choose({"freeCacheEngine": False, "gpuMemoryUtilization": 0.3}, {"kvCacheSpace": 1}),
        },
    )
    pair = Pair(config, PROBES)
    try:
        yield from measure_syncs(settings, pair)
        yield from replay_routes(settings, pair)
    finally:
        pair.close()


def measure_syncs(settings: Settings, pair: Pair) -> Iterator[Figure]:
    """Measure syncs in turns, every second one verified, and a copy of the bytes that they send."""
    actor = pair.rank._actor
    times = [sync(pair) for _ in range(2 * ROUNDS + 2)][2:]  # the first ones find the places of weights
    tensors = [tensor.clone() for _, tensor in to_file_format(actor.model, actor.gather_weights())]
    weights = sum(1 for _ in iterate_experts(to_file_format(actor.model, actor.gather_weights())))
    start = time.perf_counter()
    for tensor in tensors:
        tensor.clone()
    if settings.device == "cuda":
        torch.cuda.synchronize()
    copy = time.perf_counter() - start
    verified = median(times[::2])
    plain = median(times[1::2])
    on_gpu = not settings.rehearse
    yield Figure("weights in the files", weights, passed=weights > len(tensors))
    yield Figure("bytes of a sync", sum(each.nbytes for each in tensors) / 1e9, "GB")
    each = 1e3 * plain / weights
    yield Figure("a sync, for each weight", each, "ms", passed=each < MAX_MS if on_gpu else None, note=f"{MAX_MS} ms")
    yield Figure("a verified sync, for each weight", 1e3 * verified / weights, "ms")
    ratio = plain / copy
    passed = ratio < MAX_RATIO if on_gpu else None
    yield Figure("a sync against a copy of the same bytes", ratio, "x", passed=passed, note=f"at most {MAX_RATIO:g} x")
    held = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    equal = held.parts == sum_weights(actor.gather_weights()).parts
    yield Figure("the engine has the exact weights that were sent", str(equal), passed=equal)


def sync(pair: Pair) -> float:
    """Return the seconds of a sync."""
    start = time.perf_counter()
    pair.version += 1
    pair.engines.sync_weights(pair.version)
    return time.perf_counter() - start


def replay_routes(settings: Settings, pair: Pair) -> Iterator[Figure]:
    """Compare the engine's log-probabilities with the policy's, whose routers choose or whose tokens go to the experts
    that the engine chose."""
    prompts = [list(range(40 + number, 60 + number)) for number in range(settings.choose(64, 8))]
    responses = pair.generate(prompts, list(range(len(prompts))))
    sequences = Sequences.pad(prompts, [each.token_ids for each in responses], pad_token_id=0)
    sampled = torch.cat([torch.tensor(each.log_probs) for each in responses])
    chosen, _, routes = pair.rank.record_log_probs(sequences)
    reported = [each.routes for each in responses]
    if settings.rehearse:
        reported = list(split_rows(routes, sequences.token_counts()))
    replayed, _ = pair.rank.log_probs(sequences.with_routes(reported))
    without, with_routes = (float((torch.from_numpy(each) - sampled).abs().mean()) for each in (chosen, replayed))
    yield Figure("routers of the policy: mean difference from the engine", without, "nats")
    yield Figure(
        "routes of the engine: mean difference from the engine",
        with_routes,
        "nats",
        passed=None if settings.rehearse else with_routes < without,
        note="below the one before",
    )
