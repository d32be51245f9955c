"""The outcome of scoring one response: a number, or the reason for the failure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal[
    "raised",
    "timed_out",
    "crashed",
    "none",
    "not_a_number",
    "not_finite",
    "unavailable",  # a judge that does not answer, or with status 429 or 5xx
    "rejected",  # a request that the judge rejects
    "no_score",  # an answer of a judge without a valid score
    "environment",  # an environment, agent, tool or sandbox that failed: the conversation has no reward
]


@dataclass(frozen=True)
class Failure:
    """A response without a score. It is left out of the update: a failure is not a score of 0."""

    reason: Reason
    message: str
    """Details for the log."""
    was_called: bool = True
    """False: the reward was not called for this response, because earlier calls failed."""


Outcome = float | Failure


def call_reward(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Outcome:
    """Call a reward. Any value that float() accepts is a score, except text. In a dictionary, "score" is the score."""
    try:
        value = function(**arguments)
        if isinstance(value, dict):
            value = value.get("score")
        if value is None:
            return Failure("none", 'it returned None, or a dictionary without "score"')
        if not hasattr(value, "__float__"):
            return Failure("not_a_number", f"it returned {type(value).__name__} instead of a number")
        score = float(value)
    except (Exception, SystemExit) as error:
        return Failure("raised", f"{type(error).__name__}: {error}"[:500])
    if not math.isfinite(score):
        return Failure("not_finite", f"it returned {score}")
    return score


def call_tool(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str | Failure:
    """Call a tool. Its value becomes text: JSON, unless it is text already."""
    try:
        value = function(**arguments)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except (Exception, SystemExit) as error:
        return Failure("raised", f"{type(error).__name__}: {error}"[:500])
