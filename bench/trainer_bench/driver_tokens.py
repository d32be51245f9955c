"""1,000,000 response tokens through the driver: from the engines' responses to the arguments of the update."""

from __future__ import annotations

import numpy as np
from bench_report import Row

from trainer_bench.driver_step import measure_driver

TOKENS = 1_000_000
RESPONSES = 1024
RANKS = 8
MAX_S = 0.1


def measure() -> Row:
    """Measure responses of lognormal lengths."""
    weights = np.random.default_rng(0).lognormal(0.0, 0.5, RESPONSES)
    lengths = np.maximum(1, weights / weights.sum() * TOKENS).astype(int).tolist()
    times = measure_driver(lengths, RANKS)
    moved = min(times.ours)
    whole = min(times.other)
    return Row(
        "1 M response tokens through the driver: received, padded, sent to the train workers three times",
        f"under {MAX_S} s of CPU",
        f"{moved:.3f} s, and {whole - moved:.3f} s for advantages and metrics ({RESPONSES:,} responses of lognormal "
        f"lengths, {RANKS} ranks)",
        moved < MAX_S,
        vars(times),
    )


if __name__ == "__main__":
    print(measure())
