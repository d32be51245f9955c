"""The preset arithmetic: additions of two-digit numbers, which a small model learns in minutes."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example, Split

DATA_SOURCE = "rlt/arithmetic"
TEST_EXAMPLES = 100
"""Number of the 8,100 examples that are for validation and never trained on."""


def generate_arithmetic(seed: int, split: Split) -> list[Example]:
    """Generate one split of the 8,100 examples, "37+58=" -> "095", in an order drawn from the seed.

    The order is random so that runs without data.shuffle also train on mixed numbers. The answer always has three
    digits, so that its length does not reveal the sum.
    """
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    order = np.random.default_rng(seed).permutation(len(pairs))
    taken = order[:-TEST_EXAMPLES] if split == "train" else order[-TEST_EXAMPLES:]
    return [_build_example(*pairs[i]) for i in taken]


def _build_example(a: int, b: int) -> Example:
    answer = f"{a + b:03d}"
    return Example(f"{a}+{b}=", answer, answer, DATA_SOURCE)
