"""Additions of two-digit numbers: a task with a known answer that a small model learns in minutes."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example, Split

DATA_SOURCE = "rlt/arithmetic"
TEST_EXAMPLES = 100
"""So many of the 8,100 are for validation, and never trained on."""


def arithmetic_examples(seed: int, split: Split) -> list[Example]:
    """One split of all 8,100, "37+58=" -> "095", in an order drawn from the seed: unshuffled runs see mixed numbers.

    The sum has always three digits, so that the length of the response says nothing about it.
    """
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    order = np.random.default_rng(seed).permutation(len(pairs))
    taken = order[:-TEST_EXAMPLES] if split == "train" else order[-TEST_EXAMPLES:]
    return [_example(*pairs[i]) for i in taken]


def _example(a: int, b: int) -> Example:
    answer = f"{a + b:03d}"
    return Example(f"{a}+{b}=", answer, answer, DATA_SOURCE)
