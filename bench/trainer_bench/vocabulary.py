"""Log-probabilities with a vocabulary of 150,000 against full logits: bench/log_probs.py in short."""

from __future__ import annotations

import log_probs
import torch
from bench_report import Row

TOKENS, HIDDEN, VOCABULARY = 1024, 256, 150_000
REPEATS = 3
MAX_PEAK, MAX_TIME = 0.25, 1.10


def measure() -> Row:
    """Measure on one core."""
    torch.set_num_threads(1)
    found = log_probs.measure(TOKENS, HIDDEN, VOCABULARY, "cpu", REPEATS)
    peak, seconds = found["peak_ratio"], found["time_ratio"]
    return Row(
        f"log-probabilities at vocabulary {VOCABULARY // 1000}k, against full logits",
        f"at most {MAX_PEAK} x peak memory, {MAX_TIME:.2f} x time",
        f"{peak:.2f} x peak memory, {seconds:.2f} x time ({TOKENS} tokens)",
        peak <= MAX_PEAK and seconds <= MAX_TIME,
        found,
    )


if __name__ == "__main__":
    print(measure())
