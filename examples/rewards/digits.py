"""The reward of 23-reward-function.yaml."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any


def share_of_digits(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], bonus: float
) -> float:
    """Return the share of positions with the correct digit, plus `bonus` if all are correct."""
    pairs = [*zip_longest(solution_str.strip(), ground_truth)]
    share = [one == other for one, other in pairs].count(True) / len(pairs)
    return share + bonus if share == 1 else share
