"""Arithmetic series modulo 10 to go on with: verl's digit completion (tests/special_e2e/envs/digit_completion).

Its dense reward (rule characters) pays for every right character, so that random weights learn without examples how an
answer looks; commas and zeros of the right length get 0.5, and what is above that has looked at the terms. verl's own
ends at the first mistake, which pays often enough where 16 tokens are all there are, but not with 262.
"""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example, Split

DATA_SOURCE = "rlt/digits"
MODULUS = 10
TRAIN_EXAMPLES = 800
"""The others, 200, are for validation."""


def digits_examples(seed: int, split: Split) -> list[Example]:
    """The prompts of one split, in the seed's order: "3,5:10,4" (two terms, the modulus, how many follow) -> "7,9,1,3".

    All first terms, differences and counts from 0 to 9 occur once: 1,000 prompts. The answer may be empty.
    """
    triples = [(first, step, count) for first in range(10) for step in range(10) for count in range(10)]
    order = np.random.default_rng(seed).permutation(len(triples))
    taken = order[:TRAIN_EXAMPLES] if split == "train" else order[TRAIN_EXAMPLES:]
    return [_example(*triples[i]) for i in taken]


def _example(first: int, step: int, count: int) -> Example:
    terms = [str((first + place * step) % MODULUS) for place in range(count + 2)]
    answer = ",".join(terms[2:])
    return Example(f"{terms[0]},{terms[1]}:{MODULUS},{count}", answer, answer, DATA_SOURCE)
