"""The reward of a job: a weighted sum of rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from rlt_api.blocks.rewards import Reward
from rlt_trainer.rewards.rules import exact, gsm8k

Rule = Callable[[str, str], float]
"""(response without end-of-text token, ground truth) -> score in [0, 1]"""

RULES: dict[str, Rule] = {"exact": exact, "gsm8k": gsm8k}


class Scorer:
    """Scores responses. Raises ValueError for a rule that does not exist."""

    def __init__(self, rewards: list[Reward]) -> None:
        self._weighted: list[tuple[float, Rule]] = []
        for reward in rewards:
            if reward.name is None:
                raise ValueError("rewards: only rules by name are supported yet.")
            if reward.name not in RULES:
                nearest = difflib.get_close_matches(reward.name, RULES, n=1, cutoff=0.0)[0]
                raise ValueError(
                    f'rewards: there is no rule "{reward.name}". The rules are {", ".join(sorted(RULES))}; '
                    f'did you mean "{nearest}"?'
                )
            self._weighted.append((reward.weight, RULES[reward.name]))

    def __call__(self, response: str, ground_truth: str) -> float:
        return sum((weight * rule(response, ground_truth) for weight, rule in self._weighted), start=0.0)
