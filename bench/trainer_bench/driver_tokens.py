"""1,000,000 response tokens through the driver: from the engines' responses to the arguments of the update."""

from __future__ import annotations

import numpy as np
from bench_report import Row

from trainer_bench.driver_step import measure_driver

TOKENS, RESPONSES, RANKS = 1_000_000, 1024, 8
MAX_S = 0.1


def measure() -> Row:
    """Measure responses of lognormal lengths."""
    weights = np.random.default_rng(0).lognormal(0.0, 0.5, RESPONSES)
    lengths = np.maximum(1, weights / weights.sum() * TOKENS).astype(int).tolist()
    seconds = measure_driver(lengths, RANKS)
    return Row(
        "1 M response tokens through the driver",
        f"under {MAX_S} s of CPU",
        f"{min(seconds):.3f} s ({RESPONSES:,} responses of lognormal lengths, {RANKS} ranks)",
        min(seconds) < MAX_S,
        {"seconds": seconds},
    )


if __name__ == "__main__":
    print(measure())
