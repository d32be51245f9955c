"""A bandit with four states: the smallest task that reinforcement alone solves, in seconds and from random weights."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example

DATA_SOURCE = "rlt/bandit"
STATES = "abcd"


def bandit_examples(seed: int) -> list[Example]:
    """One prompt for each state, "a:" to "d:", whose right answer is a digit that the seed decides.

    The reward is sparse (all or nothing) and wants one token: with data.maxResponseLength 1 a response is one pull.
    """
    digits = np.random.default_rng(seed).permutation(10)[: len(STATES)]
    return [
        Example(f"{state}:", str(digit), str(digit), DATA_SOURCE) for state, digit in zip(STATES, digits, strict=True)
    ]
