"""What a rank costs the driver: the arguments and results of a step, and the calls of Ray's actors.

The ranks are threads. Ray's calls go to a few actors, each of which is called many times: the driver submits as many
calls, and waits for as many results, as with an actor for each rank.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from bench_report import Row

from rlt_trainer.cluster.actors import results, submit
from trainer_bench.driver_step import GROUP, MINI_BATCHES, measure_driver

RANKS = (8, 64, 256, 1024)
ROWS = GROUP * MINI_BATCHES
"""Responses of a rank."""
TOKENS = 8
"""Tokens of a response."""
ACTORS = 4
CALLS = 3
COMPARED = 64
MAX_RATIO = 1.5


class Rank:
    """An actor that does nothing."""

    def call(self, value: int) -> int:
        """Return the value."""
        return value


def measure() -> Row:
    """Measure one step of few tokens with several numbers of ranks."""
    arguments = {ranks: min(measure_driver([TOKENS] * ROWS * ranks, ranks).other) / ranks for ranks in RANKS}
    calls = measure_calls()
    per_rank = {ranks: arguments[ranks] + calls[ranks] for ranks in RANKS}
    ratio = per_rank[COMPARED] / per_rank[RANKS[0]]
    listed = ", ".join(f"{ranks:,}: {seconds * 1000:.2f}" for ranks, seconds in per_rank.items())
    return Row(
        f"the driver's CPU per rank, {COMPARED} ranks against {RANKS[0]}, {ROWS} responses of {TOKENS} tokens each",
        f"at most {MAX_RATIO} x",
        f"{ratio:.2f} x; ms per rank and step: {listed}",
        ratio <= MAX_RATIO,
        {"arguments": arguments, "calls": calls},
    )


def measure_calls() -> dict[int, float]:
    """Return the driver's seconds of CPU per rank for the calls of a step, by number of ranks."""
    ray.init("local", num_cpus=ACTORS, include_dashboard=False, log_to_driver=False)
    actors: list[Any] = [ray.remote(Rank).remote() for _ in range(ACTORS)]
    found = {}
    for ranks in (ACTORS, *RANKS):  # the first one starts the actors
        start = time.process_time()
        for _ in range(CALLS):
            results([submit(actors[rank % ACTORS], Rank.call, rank) for rank in range(ranks)])
        found[ranks] = (time.process_time() - start) / ranks
    ray.shutdown()
    return found


if __name__ == "__main__":
    print(measure())
