"""The best and the worst rollouts of a step. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def select_rollouts(
    rollouts: list[Mapping[str, Any]], *, best: int | None, worst: int | None
) -> list[Mapping[str, Any]]:
    """The best and the worst rollouts by reward, or all rollouts in their order."""
    if best is None and worst is None:
        return rollouts
    ordered = sorted(rollouts, key=_get_reward, reverse=True)
    selected = ordered[: best or 0]
    return selected + (ordered[max(len(selected), len(ordered) - worst) :] if worst else [])


def select_extremes(rollouts: Iterable[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """The best `count` and the worst `count` rollouts, the best first. Keeps no more of them in memory.

    Of rollouts with the same prompt and response, one is kept.
    """
    kept: list[Mapping[str, Any]] = []
    for each in rollouts:
        if not any(_get_texts(each) == _get_texts(other) != (None, None) for other in kept):
            kept = select_rollouts([*kept, each], best=count, worst=count)
    return kept


def _get_texts(rollout: Mapping[str, Any]) -> tuple[Any, Any]:
    return rollout.get("prompt"), rollout.get("response")


def _get_reward(rollout: Mapping[str, Any]) -> float:
    """The reward to sort by. null in JSON is NaN or infinite and sorts as the worst."""
    reward = rollout.get("reward")
    return float(reward) if isinstance(reward, (int, float)) else -math.inf
