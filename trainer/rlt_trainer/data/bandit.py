"""The preset bandit: a bandit with four states, the smallest task. RL solves it in seconds from random weights."""

from __future__ import annotations

import numpy as np

from rlt_trainer.data.prompt import Example

DATA_SOURCE = "rlt/bandit"
STATES = "abcd"


def generate_bandit(seed: int) -> list[Example]:
    """Generate one prompt for each state, "a:" to "d:". The seed determines the digit that is the correct answer.

    The reward is sparse (0 or 1) for one token: with data.maxResponseLength 1 a response is one pull.
    """
    digits = np.random.default_rng(seed).permutation(10)[: len(STATES)]
    return [
        Example(f"{state}:", str(digit), str(digit), DATA_SOURCE) for state, digit in zip(STATES, digits, strict=True)
    ]
