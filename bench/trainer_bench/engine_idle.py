"""The share of an engine's time in which its places are empty, at lognormal lengths: on-policy, and generated ahead.

The schedule and the router of a run send real requests to vLLM. The update between two steps takes no time:
the figure is about the generation alone, as in colocated mode, whose engines are paused during the update.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from bench_report import Row

from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import PendingGroup
from rlt_trainer.driver.schedule import Group, Schedule
from rlt_trainer.rollout.engine import EngineError, Request
from rlt_trainer.rollout.router import Router
from rlt_trainer.workers.rollout_worker import RolloutWorker
from trainer_bench.configs import LOOPBACK, build_config
from trainer_bench.router import SAMPLING, build_prompt, raise_loss

PLACES = 16
"""Requests that the engine runs at the same time."""
PROMPTS = 8
N = 4
"""Responses to a prompt."""
MEAN_TOKENS = 48
SIGMA = 0.8
FIRST = 3
"""The first step that counts."""
LAST = 15
"""The last one."""
BOUNDS = (0, 1, 2)
"""Values of rollout.staleness.maxSteps. 0: on-policy."""
MAX_IDLE = 0.1


@dataclass
class Meter:
    """The engine of the router, and how many of its places had a request for how long."""

    worker: RolloutWorker
    requests: int = 0
    changed: float = 0.0
    busy_s: float = 0.0
    """Sum over the places."""

    async def submit(self, requests: Sequence[Request]) -> None:
        """As in Engine."""
        self.add(len(requests))
        await self.worker.submit(requests)

    async def ended(self) -> list[tuple[int, Response | EngineError]]:
        """As in Engine."""
        results = await self.worker.ended()
        self.add(-len(results))
        return results

    async def abort(self, numbers: Sequence[int]) -> None:
        """As in Engine."""
        await self.worker.abort(numbers)

    def add(self, requests: int) -> None:
        """Change the number of requests now."""
        now = time.perf_counter()
        self.busy_s += min(self.requests, PLACES) * (now - self.changed)
        self.changed = now
        self.requests += requests


def measure() -> Row:
    """Measure the idle share for each bound of the staleness."""
    shares = {bound: asyncio.run(measure_idle_share(bound)) for bound in BOUNDS}
    ahead = ", ".join(f"{share:.1%} with maxSteps {bound}" for bound, share in shares.items() if bound)
    return Row(
        "engine time idle in the generation of a step, lognormal lengths",
        f"at most {MAX_IDLE:.0%} with staleness",
        f"{ahead}, {shares[0]:.1%} on-policy ({PROMPTS * N} responses a step, {PLACES} at the same time)",
        max(share for bound, share in shares.items() if bound) <= MAX_IDLE,
        {f"maxSteps {bound}": share for bound, share in shares.items()},
    )


async def measure_idle_share(bound: int) -> float:
    """Generate the batches of all steps with the same lengths for each bound. Returns a share, 0 to 1."""
    with tempfile.TemporaryDirectory() as folder:
        rollout = {"engine": "vllm", "maxNumSeqs": PLACES}
        config = build_config(folder, rollout=rollout, data={"maxResponseLength": SAMPLING.max_tokens})
        worker = RolloutWorker(config, 0, address=LOOPBACK)
        info = await worker.start()
        meter = Meter(worker)
        router = Router(on_loss=raise_loss)
        router.add(meter, max_requests=info.max_requests)
        share = await asyncio.to_thread(run_steps, Sending(router, asyncio.get_running_loop()), meter, bound)
        await router.close()
        await worker.close()
    return share


def run_steps(sending: Sending, meter: Meter, bound: int) -> float:
    """Take the batch of each step, in a thread: the event loop has the requests."""
    schedule = Schedule(
        sending.start,
        size=PROMPTS,
        max_staleness=bound,
        last_step=LAST + bound + 1,  # the batches after the last step are generated ahead as well
        wait=lambda changed, is_generating: changed.result(),
    )
    for step in range(1, FIRST):
        schedule.next_batch(step)
    start_s, busy_before_s = sending.read(meter)
    for step in range(FIRST, LAST + 1):
        schedule.next_batch(step)
    end_s, busy_s = sending.read(meter)
    return 1 - (busy_s - busy_before_s) / (PLACES * (end_s - start_s))


@dataclass
class Sending:
    """Sends the groups of a generation to the router."""

    router: Router
    loop: asyncio.AbstractEventLoop
    groups: int = 0

    def start(self, step: int) -> list[Group]:
        """Send the groups of the next generation."""
        first = self.groups
        self.groups += PROMPTS
        return [self.send(number, step) for number in range(first, self.groups)]

    def send(self, number: int, step: int) -> Group:
        """Send a group."""
        pending = PendingGroup()
        asyncio.run_coroutine_threadsafe(self.generate(number, pending), self.loop)
        return Group(number, step, Prompt(number, (1,), "", "", "", ""), range(N), pending)

    async def generate(self, number: int, pending: PendingGroup) -> None:
        """Generate the responses of a group."""
        lengths = draw_lengths(number)
        await asyncio.gather(
            *(
                self.router.sample(build_prompt(number), seed=number * N + row, sampling=SAMPLING, max_tokens=length)
                for row, length in enumerate(lengths)
            )
        )
        pending.generated.set_result(None)
        pending.scored.set_result([])

    def read(self, meter: Meter) -> tuple[float, float]:
        """Read the time, and the meter at this time."""
        reading: Future[tuple[float, float]] = Future()

        def read() -> None:
            meter.add(0)
            reading.set_result((meter.changed, meter.busy_s))

        self.loop.call_soon_threadsafe(read)
        return reading.result()


def draw_lengths(group: int) -> list[int]:
    """Draw the lengths of a group's responses."""
    weights = np.random.default_rng(group).lognormal(-(SIGMA**2) / 2, SIGMA, N)
    lengths: list[int] = np.clip(weights * MEAN_TOKENS, 1, SAMPLING.max_tokens).astype(int).tolist()
    return lengths


if __name__ == "__main__":
    print(measure())
