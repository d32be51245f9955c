"""Additions of two-digit numbers: a task with a known answer that a small model learns in minutes."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example

DATA_SOURCE = "rlt/arithmetic"


def arithmetic_examples(seed: int) -> list[Example]:
    """All 8,100 of them, "37+58=" -> "095", in an order drawn from the seed: unshuffled runs see mixed numbers too.

    The sum has always three digits, so that the length of the response says nothing about it.
    """
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    return [
        Example(prompt=f"{a}+{b}=", ground_truth=f"{a + b:03d}", solution=f"{a + b:03d}", data_source=DATA_SOURCE)
        for a, b in (pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs)))
    ]
