"""Log-probabilities in chunks need a small part of the memory of full logits, at a vocabulary of 150,000."""

from __future__ import annotations

import pytest
from log_probs import build_step, measure_peaks

MAX_PEAK_RATIO = 0.25


@pytest.mark.slow
def test_the_peak_is_a_quarter_of_that_of_full_logits(device: str) -> None:
    """Bytes of tensors do not depend on the load of the machine. bench/log_probs.py also compares the time."""
    tokens = 8192 if device == "cuda" else 1500
    in_chunks, in_one = measure_peaks(build_step(tokens, 16, 150_000, device))
    assert in_chunks <= MAX_PEAK_RATIO * in_one
