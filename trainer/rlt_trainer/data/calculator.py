"""The preset calculator: products of two-digit numbers, which a small model learns to leave to the calculator."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.byte_tokenizer import EOS
from rlt_trainer.data.prompt import Example, Split

DATA_SOURCE = "rlt/calculator"
TEST_EXAMPLES = 100
"""Number of the 8,100 examples that are for validation and never trained on."""


def generate_calculator(seed: int, split: Split) -> list[Example]:
    """Generate one split of the 8,100 examples, "37*58=" -> "2146", in an order drawn from the seed.

    The solution is a conversation with the environment calculator: a call, its result, and the answer after "#### ".
    """
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    order = np.random.default_rng(seed).permutation(len(pairs))
    taken = order[:-TEST_EXAMPLES] if split == "train" else order[-TEST_EXAMPLES:]
    return [_build_example(*pairs[i]) for i in taken]


def _build_example(a: int, b: int) -> Example:
    answer = str(a * b)
    solution = f"<calculator>{a}*{b}</calculator>{EOS}<result>{answer}</result>#### {answer}"
    return Example(f"{a}*{b}=", answer, solution, DATA_SOURCE)
