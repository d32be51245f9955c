"""Requests one by one through the router against all of them at once in the engine, with lognormal lengths."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence

import numpy as np
from bench_report import Row

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import EngineError, Request, Sampling
from rlt_trainer.rollout.router import Engine, Router
from rlt_trainer.workers.rollout_worker import RolloutWorker
from trainer_bench.configs import LOOPBACK, build_config
from trainer_bench.interleaved import Times

REQUESTS = 160
CONCURRENT = 16
MEAN_TOKENS = 48
ROUNDS = 4
MAX_RATIO = 1.05
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=512, stop_token_ids=())


def measure() -> Row:
    """Measure vLLM with fewer places than requests, so that requests wait."""
    times = asyncio.run(run())
    return Row(
        "separate engine, requests through the router, against all of them at once in the engine, lognormal lengths",
        f"at most {MAX_RATIO} x",
        f"{times} for {REQUESTS} requests, {CONCURRENT} at the same time",
        times.ratio <= MAX_RATIO,
        vars(times),
    )


async def run() -> Times:
    """Generate the same responses in both ways, in turns."""
    times = Times([], [])
    with tempfile.TemporaryDirectory() as folder:
        rollout = {"engine": "vllm", "maxNumSeqs": CONCURRENT}
        config = build_config(folder, rollout=rollout, data={"maxResponseLength": SAMPLING.max_tokens})
        worker = RolloutWorker(config, 0, address=LOOPBACK)
        info = await worker.start()
        lengths = draw_lengths()
        for number in range(ROUNDS + 1):
            routed = await measure_routed(worker, info.max_requests, lengths)
            direct = await measure_direct(worker, lengths)
            if number > 0:  # the first round loads kernels
                times.ours.append(routed)
                times.other.append(direct)
        await worker.close()
    return times


def draw_lengths() -> list[int]:
    """Draw the lengths of the responses."""
    weights = np.random.default_rng(0).lognormal(0.0, 0.8, REQUESTS)
    lengths: list[int] = np.clip(weights / weights.mean() * MEAN_TOKENS, 1, SAMPLING.max_tokens).astype(int).tolist()
    return lengths


async def measure_routed(worker: RolloutWorker, max_requests: int, lengths: Sequence[int]) -> float:
    """Return the seconds of requests that the router sends."""
    router = Router(on_loss=raise_loss)
    router.add(worker, max_requests=max_requests)
    start = time.perf_counter()
    await asyncio.gather(
        *(
            router.sample(build_prompt(number), seed=number, sampling=SAMPLING, max_tokens=length)
            for number, length in enumerate(lengths)
        )
    )
    seconds = time.perf_counter() - start
    await router.close()
    return seconds


async def measure_direct(worker: RolloutWorker, lengths: Sequence[int]) -> float:
    """Return the seconds of requests that the engine gets together."""
    requests = [
        Request(number, build_prompt(number), number, SAMPLING, length) for number, length in enumerate(lengths)
    ]
    left = len(requests)
    all_done = asyncio.Event()

    def done(number: int, result: Response | EngineError) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            all_done.set()

    start = time.perf_counter()
    await worker.engine.submit(requests, done)
    await all_done.wait()
    return time.perf_counter() - start


def build_prompt(number: int) -> list[int]:
    """Build a short prompt."""
    return [50 + number % 100, 60 + number // 100, 70]


def raise_loss(engine: Engine, error: Exception) -> None:
    """End the measurement with the engine's error."""
    raise error


if __name__ == "__main__":
    print(measure())
