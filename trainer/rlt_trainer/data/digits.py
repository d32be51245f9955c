"""The preset digits: arithmetic series modulo 10 to continue (verl, tests/special_e2e/envs/digit_completion).

The dense reward (rule characters) rises with every correct character, so that random weights learn the form of an
answer without examples. Commas and zeros of the correct length score 0.5. A higher score requires reading the terms.
verl's reward stops at the first mistake: that is dense enough for a vocabulary of 16 tokens, but not of 262.
"""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example, Split

DATA_SOURCE = "rlt/digits"
MODULUS = 10
TRAIN_EXAMPLES = 800
"""The other 200 are for validation."""


def generate_digits(seed: int, split: Split) -> list[Example]:
    """Generate one split in an order drawn from the seed: "3,5:10,4" -> "7,9,1,3".

    A prompt has two terms, the modulus, and the number of terms to add. Each combination of first term, difference and
    number from 0 to 9 occurs once: 1,000 prompts. The answer may be empty.
    """
    triples = [(first, step, count) for first in range(10) for step in range(10) for count in range(10)]
    order = np.random.default_rng(seed).permutation(len(triples))
    taken = order[:TRAIN_EXAMPLES] if split == "train" else order[TRAIN_EXAMPLES:]
    return [_build_example(*triples[i]) for i in taken]


def _build_example(first: int, step: int, count: int) -> Example:
    terms = [str((first + place * step) % MODULUS) for place in range(count + 2)]
    answer = ",".join(terms[2:])
    return Example(f"{terms[0]},{terms[1]}:{MODULUS},{count}", answer, answer, DATA_SOURCE)
