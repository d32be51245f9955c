"""Step lines of OpenRLHF and ROLL, with verl's names of their metrics. Pure.

OpenRLHF 0.11.2 (openrlhf/trainer/ppo_trainer.py) logs `Global step N: {'name': value, …}`, N being the completed steps.
ROLL (roll/pipeline, roll/utils/tracking.py, August 2026) logs the metrics as JSON with the step, which begins at 0, and
then `pipeline step N finished`.
"""

from __future__ import annotations

import json
import re
from typing import Any

_OPENRLHF = re.compile(r"Global step (?P<step>[0-9]{1,18}): \{(?P<metrics>'[^{}]*)\}")
_PAIR = re.compile(r"'(?P<name>[^']+)': (?P<value>-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf|nan))(?=[,}]|$)")
_ROLL_END = re.compile(r"pipeline step (?P<step>[0-9]{1,18}) finished")
_ROLL_STEP = "system/step"
MAX_NUMBER = 10**18
"""Bound of integers, as in the step lines of verl."""

NAMES = {
    # OpenRLHF
    "rollout/reward_mean": "critic/rewards/mean",
    "rollout/response_length_mean": "response_length/mean",
    "kl": "actor/kl_loss",
    "policy_loss": "actor/pg_loss",
    "entropy_loss": "actor/entropy",
    "actor_grad_norm": "actor/grad_norm",
    "actor_lr": "actor/lr",
    "ppo_clip_ratio": "actor/pg_clipfrac",
    "timing/step_total": "timing_s/step",
    # ROLL
    "token/response_length/mean": "response_length/mean",
    "tokens/response_length/mean": "response_length/mean",
    "actor/clipfrac": "actor/pg_clipfrac",
    "actor_train/grad_norm": "actor/grad_norm",
    "time/step_total": "timing_s/step",
}
"""Name in OpenRLHF or ROLL -> verl's name. Other names stay."""


def parse_foreign_line(line: str) -> tuple[int, dict[str, float]] | None:
    """Return the completed steps and the metrics in a step line of OpenRLHF or ROLL; None for any other line.

    ROLL's last line of a step has no metrics.
    """
    found = _OPENRLHF.search(line)
    if found:
        pairs = {pair["name"]: float(pair["value"]) for pair in _PAIR.finditer(found["metrics"])}
        return int(found["step"]), _rename(pairs)
    end = _ROLL_END.search(line)
    if end:
        return int(end["step"]) + 1, {}
    return _parse_roll(line) if _ROLL_STEP in line else None


def _parse_roll(line: str) -> tuple[int, dict[str, float]] | None:
    """A JSON object after the prefix of the log, or below "metrics" of the tracker stdout."""
    try:
        content: Any = json.loads(line[line.index("{") :])
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict) and isinstance(content.get("metrics"), dict):
        content = content["metrics"]
    step = content.get(_ROLL_STEP) if isinstance(content, dict) else None
    if type(step) is not int or not 0 <= step < MAX_NUMBER:
        return None
    numbers = {
        name.partition("@")[0]: float(value)
        for name, value in content.items()
        if name != _ROLL_STEP and (type(value) is float or (type(value) is int and abs(value) < MAX_NUMBER))
    }
    return step + 1, _rename(numbers)


def _rename(metrics: dict[str, float]) -> dict[str, float]:
    return {NAMES.get(name, name): value for name, value in metrics.items()}
